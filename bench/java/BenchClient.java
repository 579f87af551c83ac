import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Exit;

/**
 * The client JVM that both servers are measured with: one long-lived process, so that neither server meets a colder
 * client than the other. One command per line on stdin (words separated by tabs), one line per result on stdout: "ok"
 * or "error", a tab, and what the command printed, in base64.
 *
 *   tool CLASS ARGS...                          main of one of Kafka's own tools; its output
 *   assign BOOTSTRAP TOPIC PARTITIONS COUNT     reads COUNT records with assign(): "records bytes nanoseconds"
 *   latency BOOTSTRAP TOPIC COUNT ACKS BYTES    one record at a time, send to poll: nanoseconds of each
 */
public class BenchClient {
    private static final Duration PATIENCE = Duration.ofSeconds(10);

    public static void main(String[] arguments) throws Exception {
        PrintStream replies = System.out;
        // A tool that wants to exit must end its command, not this process.
        Exit.setExitProcedure((status, message) -> {
            if (status != 0) throw new IllegalStateException("exit " + status + " " + message);
        });
        Exit.setHaltProcedure((status, message) -> {
            throw new IllegalStateException("halt " + status + " " + message);
        });
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream capture = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(capture);
            String status = "ok";
            try {
                run(Arrays.asList(line.split("\t", -1)));
            } catch (Throwable error) {
                status = "error";
                Throwable cause = error.getCause() == null ? error : error.getCause();
                capture.println(error + " / " + cause);
            }
            capture.flush();
            replies.println(status + "\t" + Base64.getEncoder().encodeToString(printed.toByteArray()));
            replies.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void run(List<String> words) throws Exception {
        switch (words.get(0)) {
            case "tool" -> {
                String[] rest = words.subList(2, words.size()).toArray(new String[0]);
                Class.forName(words.get(1)).getMethod("main", String[].class).invoke(null, (Object) rest);
            }
            case "assign" -> assign(words.get(1), words.get(2), Integer.parseInt(words.get(3)),
                Long.parseLong(words.get(4)));
            case "latency" -> latency(words.get(1), words.get(2), Integer.parseInt(words.get(3)), words.get(4),
                Integer.parseInt(words.get(5)));
            default -> throw new IllegalArgumentException("unknown command " + words.get(0));
        }
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String bootstrap) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static void assign(String bootstrap, String topic, int partitions, long count) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap)) {
            List<TopicPartition> assigned = new ArrayList<>();
            for (int index = 0; index < partitions; index++) assigned.add(new TopicPartition(topic, index));
            consumer.assign(assigned);
            consumer.seekToBeginning(assigned);
            assigned.forEach(consumer::position);
            long records = 0;
            long bytes = 0;
            long began = System.nanoTime();
            while (records < count) {
                ConsumerRecords<byte[], byte[]> polled = consumer.poll(PATIENCE);
                if (polled.isEmpty()) break;
                for (ConsumerRecord<byte[], byte[]> record : polled) {
                    records++;
                    bytes += record.value().length;
                }
            }
            System.out.println(records + " " + bytes + " " + (System.nanoTime() - began));
        }
    }

    private static void latency(String bootstrap, String topic, int count, String acks, int size) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("acks", acks);
        properties.put("linger.ms", "0");
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap);
             KafkaProducer<byte[], byte[]> producer =
                 new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<TopicPartition> assigned = List.of(new TopicPartition(topic, 0));
            consumer.assign(assigned);
            consumer.seekToEnd(assigned);
            assigned.forEach(consumer::position);
            byte[] value = new byte[size];
            StringBuilder out = new StringBuilder();
            for (int index = 0; index < count; index++) {
                Arrays.fill(value, (byte) ('A' + index % 26));
                long began = System.nanoTime();
                producer.send(new ProducerRecord<>(topic, value)).get();
                ConsumerRecords<byte[], byte[]> polled = consumer.poll(PATIENCE);
                long elapsed = System.nanoTime() - began;
                if (polled.count() != 1 || polled.iterator().next().value()[0] != value[0]) {
                    throw new IllegalStateException("record " + index + " did not come back alone");
                }
                out.append(elapsed).append(' ');
            }
            System.out.println(out);
        }
    }
}
