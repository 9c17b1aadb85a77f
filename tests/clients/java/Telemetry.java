import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** A producer as it is when nobody has configured anything: it pushes the metrics that the broker asks for. */
final class Telemetry {
    private static final int RECORDS = 100;

    private Telemetry() {}

    /** Arguments: how long to stay after the records are sent, in ms. */
    static void run(String bootstrap, List<String> arguments, Map<String, Object> found) throws Exception {
        String topic = Probe.createTopic(bootstrap, "java-telemetry", 1);
        try (KafkaProducer<byte[], byte[]> producer = Probe.producer(bootstrap, Map.of("client.id", "java-telemetry"))) {
            // It has one as soon as it knows its subscription; only what happens from then on is told.
            found.put("instance", producer.clientInstanceId(Duration.ofSeconds(60)));
            for (int i = 0; i < RECORDS; i++) {
                producer.send(new ProducerRecord<>(topic, new byte[] {1}));
            }
            producer.flush();
            Thread.sleep(Long.parseLong(arguments.get(0)));
        }
    }
}
