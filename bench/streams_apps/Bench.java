import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.TimeWindows;

/** The workloads in Kafka Streams: `Bench WORKLOAD BOOTSTRAP PREFIX FOLDER`. */
public final class Bench {
    public static void main(String[] args) throws Exception {
        String workload = args[0], prefix = args[2];
        Properties options = new Properties();
        options.put("application.id", prefix + "-app");
        options.put("bootstrap.servers", args[1]);
        options.put("state.dir", args[3]);
        options.put("processing.guarantee", "exactly_once_v2");
        options.put("num.stream.threads", "2");
        options.put("replication.factor", "1");
        options.put("default.key.serde", Serdes.StringSerde.class.getName());
        options.put("default.value.serde", Serdes.StringSerde.class.getName());
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> records = builder.stream(prefix + "-in");
        if (workload.equals("words")) {
            records.flatMapValues(line -> Arrays.asList(line.split(" "))).groupBy((k, v) -> v).count()
                .toStream().mapValues(Object::toString).to(prefix + "-out");
        } else if (workload.equals("windows")) {
            records.groupByKey().windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofHours(1))).count()
                .toStream((key, value) -> key.key()).mapValues(Object::toString).to(prefix + "-out");
        } else if (workload.equals("filter")) {
            records.filter((key, value) -> value.startsWith("v")).mapValues(value -> value.toUpperCase())
                .to(prefix + "-out");
        } else {
            records.join(builder.<String, String>table(prefix + "-table"), (value, row) -> value + " " + row)
                .to(prefix + "-out");
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), options);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
        Thread.sleep(Long.MAX_VALUE);
    }
}
