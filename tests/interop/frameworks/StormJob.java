import java.util.Map;
import java.util.Properties;
import org.apache.storm.Config;
import org.apache.storm.LocalCluster;
import org.apache.storm.kafka.bolt.KafkaBolt;
import org.apache.storm.kafka.bolt.mapper.FieldNameBasedTupleToKafkaMapper;
import org.apache.storm.kafka.bolt.selector.DefaultTopicSelector;
import org.apache.storm.kafka.spout.FirstPollOffsetStrategy;
import org.apache.storm.kafka.spout.KafkaSpout;
import org.apache.storm.kafka.spout.KafkaSpoutConfig;
import org.apache.storm.topology.BasicOutputCollector;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.topology.base.BaseBasicBolt;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;

/** A topology of Storm on a local cluster: KafkaSpout, a bolt that makes lines upper case, KafkaBolt. Ends with its stdin. */
public class StormJob {
    public static class Upper extends BaseBasicBolt {
        @Override public void execute(Tuple tuple, BasicOutputCollector out) {
            out.emit(new Values(null, tuple.getStringByField("value").toUpperCase()));
        }
        @Override public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("key", "message"));
        }
    }

    public static void main(String[] args) throws Exception {
        Properties producer = new Properties();
        producer.putAll(Map.of("bootstrap.servers", args[0],
            "key.serializer", "org.apache.kafka.common.serialization.StringSerializer",
            "value.serializer", "org.apache.kafka.common.serialization.StringSerializer"));
        TopologyBuilder topology = new TopologyBuilder();
        topology.setSpout("lines", new KafkaSpout<>(KafkaSpoutConfig.builder(args[0], args[1])
            .setProp("group.id", "storm").setFirstPollOffsetStrategy(FirstPollOffsetStrategy.EARLIEST).build()));
        topology.setBolt("upper", new Upper()).shuffleGrouping("lines");
        topology.setBolt("out", new KafkaBolt<String, String>().withProducerProperties(producer)
            .withTopicSelector(new DefaultTopicSelector(args[2]))
            .withTupleToKafkaMapper(new FieldNameBasedTupleToKafkaMapper<>())).shuffleGrouping("upper");
        try (LocalCluster cluster = new LocalCluster();
             LocalCluster.LocalTopology running = cluster.submitTopology("upper", new Config(), topology.createTopology())) {
            while (System.in.read() >= 0) { }
        }
        System.exit(0);
    }
}
