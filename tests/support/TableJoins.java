// The joins of Kafka Streams with tables: stream-table, table-table and by a foreign key, each to a topic of its own.
// Arguments: bootstrap servers, application id, name of this instance, state directory, threads, further settings k=v.
// A value is TEXT@KEY, and KEY (or nothing) is the foreign key.

import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;

public class TableJoins {
    static String both(String left, String right) {
        return text(left) + "/" + text(right);
    }

    static String text(String value) {
        return value == null ? "" : value.substring(0, value.indexOf('@'));
    }

    static String foreign(String value) {
        String key = value.substring(value.indexOf('@') + 1);
        return key.isEmpty() ? null : key;
    }

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
        settings.put(StreamsConfig.CLIENT_ID_CONFIG, args[2]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, args[3]);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, args[4]);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        settings.put(StreamsConfig.MAX_TASK_IDLE_MS_CONFIG, 1000);
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        for (String each : Arrays.copyOfRange(args, 5, args.length)) {
            settings.put(each.substring(0, each.indexOf('=')), each.substring(each.indexOf('=') + 1));
        }

        StreamsBuilder builder = new StreamsBuilder();
        KTable<String, String> left = builder.table("left");
        KTable<String, String> right = builder.table("right");
        left.join(right, TableJoins::both).toStream().to("inner");
        left.leftJoin(right, TableJoins::both).toStream().to("left-join");
        left.outerJoin(right, TableJoins::both).toStream().to("outer");
        left.join(right, TableJoins::foreign, TableJoins::both).toStream().to("foreign-inner");
        left.leftJoin(right, TableJoins::foreign, TableJoins::both).toStream().to("foreign-left");
        KStream<String, String> stream = builder.stream("stream");
        stream.join(right, TableJoins::both).to("stream-inner");
        stream.leftJoin(right, TableJoins::both).to("stream-left");

        KafkaStreams streams = new KafkaStreams(builder.build(settings), settings);
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        streams.start();
        System.in.read(); // the test closes our input
        streams.close(Duration.ofSeconds(20));
        System.out.println("closed");
    }
}
