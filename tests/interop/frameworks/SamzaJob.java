import java.util.List;
import java.util.Map;
import org.apache.samza.application.StreamApplication;
import org.apache.samza.application.descriptors.StreamApplicationDescriptor;
import org.apache.samza.config.MapConfig;
import org.apache.samza.runtime.LocalApplicationRunner;
import org.apache.samza.serializers.StringSerde;
import org.apache.samza.system.kafka.descriptors.KafkaSystemDescriptor;

/** An application of Samza in one process: reads a topic, writes its lines in upper case. Ends with its stdin. */
public class SamzaJob {
    public static void main(String[] args) throws Exception {
        StreamApplication job = app -> {
            KafkaSystemDescriptor kafka = new KafkaSystemDescriptor("kafka").withProducerBootstrapServers(List.of(args[0]))
                .withConsumerZkConnect(List.of("unused:2181")).withDefaultStreamConfigs(Map.of("replication.factor", "1"));
            app.getInputStream(kafka.getInputDescriptor(args[1], new StringSerde("UTF-8")))
                .map(line -> line.toUpperCase())
                .sendTo(app.getOutputStream(kafka.getOutputDescriptor(args[2], new StringSerde("UTF-8"))));
        };
        LocalApplicationRunner runner = new LocalApplicationRunner(job, new MapConfig(Map.of(
            "app.name", "upper", "job.name", "upper", "processor.id", "0", "job.default.system", "kafka",
            "job.coordinator.factory", "org.apache.samza.standalone.PassthroughJobCoordinatorFactory",
            "task.name.grouper.factory", "org.apache.samza.container.grouper.task.SingleContainerGrouperFactory",
            "systems.kafka.samza.offset.default", "oldest")));
        runner.run();
        while (System.in.read() >= 0) { }
        runner.kill();
        runner.waitForFinish();
        System.exit(0);
    }
}
