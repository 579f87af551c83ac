import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.record.internal.MemoryRecords;

/**
 * Lines in: "Name version hex" (a hex of "-" is the empty message). Lines out: what Kafka's own class of that name reads
 * (its fields in order, see dump) and the bytes it writes again, or "! reason" where it refuses the bytes.
 */
public class CodecOracle {
    private static final String[] PLACES = {
        "org.apache.kafka.common.message.%sData", "org.apache.kafka.common.message.%s",
        "org.apache.kafka.common.metadata.%s", "org.apache.kafka.coordinator.group.generated.%s",
        "org.apache.kafka.coordinator.transaction.generated.%s", "org.apache.kafka.coordinator.share.generated.%s",
        "org.apache.kafka.raft.generated.%s", "org.apache.kafka.streams.internals.generated.%s",
        "org.apache.kafka.server.log.remote.metadata.storage.generated.%s",
    };
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            out.println(answer(words[0], Short.parseShort(words[1]), words[2].equals("-") ? "" : words[2]));
        }
        out.flush();
    }

    private static String answer(String name, short version, String hex) {
        try {
            Message message = (Message) find(name).getConstructor().newInstance();
            if (version < message.lowestSupportedVersion() || version > message.highestSupportedVersion()) {
                return "! Kafka has versions " + message.lowestSupportedVersion() + "-" + message.highestSupportedVersion();
            }
            ByteBuffer buffer = ByteBuffer.wrap(HEX.parseHex(hex));
            message.read(new ByteBufferAccessor(buffer), version);
            int left = buffer.remaining();
            StringBuilder text = new StringBuilder();
            dump(message, text);
            ByteBuffer written = MessageUtil.toByteBufferAccessor(message, version).buffer();
            return text + " " + hex(written) + " " + left;
        } catch (Exception e) {
            return "! " + e.toString().replace('\n', ' ');
        }
    }

    private static Class<?> find(String name) throws ClassNotFoundException {
        for (String place : PLACES) {
            try {
                return Class.forName(String.format(place, name));
            } catch (ClassNotFoundException e) {
                continue;
            }
        }
        throw new ClassNotFoundException(name);
    }

    private static void dump(Object value, StringBuilder out) throws Exception {
        if (value == null) {
            out.append("null");
        } else if (value instanceof String text) {
            out.append('"').append(HEX.formatHex(text.getBytes(StandardCharsets.UTF_8))).append('"');
        } else if (value instanceof byte[] bytes) {
            out.append('#').append(HEX.formatHex(bytes));
        } else if (value instanceof ByteBuffer buffer) {
            out.append('#').append(hex(buffer));
        } else if (value instanceof MemoryRecords records) {
            out.append('#').append(hex(records.buffer()));
        } else if (value instanceof Uuid uuid) {
            out.append(String.format("%016x%016x", uuid.getMostSignificantBits(), uuid.getLeastSignificantBits()));
        } else if (value instanceof Double number) {
            out.append(String.format("%016x", Double.doubleToLongBits(number)));
        } else if (value instanceof Iterable<?> items) {
            out.append('[');
            for (Object item : items) {
                dump(item, out);
                out.append(';');
            }
            out.append(']');
        } else if (value instanceof Message) {
            out.append('{');
            for (Field field : value.getClass().getDeclaredFields()) {
                if (Modifier.isStatic(field.getModifiers()) || field.getName().startsWith("_")) continue;
                if (field.getType() == int.class && (field.getName().equals("next") || field.getName().equals("prev"))) continue;
                field.setAccessible(true);
                out.append(field.getName().toLowerCase()).append('=');
                dump(field.get(value), out);
                out.append(';');
            }
            out.append('}');
        } else {
            out.append(value);
        }
    }

    private static String hex(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HEX.formatHex(bytes);
    }
}
