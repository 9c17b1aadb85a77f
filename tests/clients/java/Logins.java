import java.io.FileReader;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** One record there and back for each way to log in. */
final class Logins {
    private static final long PATIENCE_S = 60;

    private Logins() {}

    /** Arguments: files of client options; `probe.topic` is the topic, `probe.token` the address of a token's file. */
    static void run(String bootstrap, List<String> arguments, Map<String, Object> found) throws Exception {
        for (String file : arguments) {
            Properties properties = new Properties();
            try (Reader reader = new FileReader(file, StandardCharsets.UTF_8)) {
                properties.load(reader);
            }
            String topic = (String) properties.remove("probe.topic");
            String token = (String) properties.remove("probe.token");
            if (token != null) {
                System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", token);
                System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.files", token.replace("file://", ""));
            }
            Map<String, Object> options = new HashMap<>();
            properties.forEach((name, value) -> options.put((String) name, value));
            try {
                thereAndBack(topic, options);
            } catch (Exception | AssertionError failure) {
                throw new AssertionError(file + ": " + failure, failure);
            }
        }
        found.put("logins", arguments.size());
    }

    private static void thereAndBack(String topic, Map<String, Object> options) throws Exception {
        String bootstrap = (String) options.get("bootstrap.servers");
        byte[] value = Probe.unique("login").getBytes(StandardCharsets.UTF_8);
        long offset;
        try (KafkaProducer<byte[], byte[]> producer = Probe.producer(bootstrap, options)) {
            offset = producer.send(new ProducerRecord<>(topic, 0, null, value)).get(PATIENCE_S, TimeUnit.SECONDS).offset();
        }
        try (KafkaConsumer<byte[], byte[]> consumer = Probe.consumer(bootstrap, options)) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seek(partition, offset);
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
            while (System.nanoTime() < end) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    Probe.require(java.util.Arrays.equals(record.value(), value), "another record at %d", record.offset());
                    return;
                }
            }
            throw new AssertionError("the record did not come back");
        }
    }
}
