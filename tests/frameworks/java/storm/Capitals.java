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

/** Spout, bolt, Kafka bolt, in a local cluster. */
public final class Capitals {
    public static final class Upper extends BaseBasicBolt {
        @Override
        public void execute(Tuple tuple, BasicOutputCollector collector) {
            collector.emit(new Values(tuple.getStringByField("key"), tuple.getStringByField("value").toUpperCase()));
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("key", "message"));
        }
    }

    public static void main(String[] words) throws Exception {
        KafkaSpoutConfig<String, String> source = KafkaSpoutConfig.builder(words[0], "storm-in")
            .setProp("group.id", "storm")
            .setFirstPollOffsetStrategy(FirstPollOffsetStrategy.EARLIEST)
            .build();
        Properties options = new Properties();
        options.put("bootstrap.servers", words[0]);
        options.put("acks", "all");
        options.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        options.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        TopologyBuilder builder = new TopologyBuilder();
        builder.setSpout("spout", new KafkaSpout<>(source), 1);
        builder.setBolt("upper", new Upper(), 1).shuffleGrouping("spout");
        builder.setBolt("kafka", new KafkaBolt<String, String>()
            .withProducerProperties(options)
            .withTopicSelector(new DefaultTopicSelector("storm-out"))
            .withTupleToKafkaMapper(new FieldNameBasedTupleToKafkaMapper<>()), 1).shuffleGrouping("upper");
        LocalCluster cluster = new LocalCluster();
        cluster.submitTopology("capitals", new Config(), builder.createTopology());
        Thread.currentThread().join();
    }
}
