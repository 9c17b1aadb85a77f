import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Java client against a broker: {@code java Probe BOOTSTRAP SCENARIO [ARGUMENT ...]}.
 *
 * <p>Prints one line of JSON, {"scenario": ..., "ok": true, ...} or {"ok": false, "error": ...}, and ends with 0 or 1.
 */
public final class Probe {
    private Probe() {}

    /** A scenario fills in what it found and throws when the broker did not do what Kafka does. */
    interface Scenario {
        void run(String bootstrap, List<String> arguments, Map<String, Object> found) throws Exception;
    }

    static final Map<String, Scenario> SCENARIOS = new TreeMap<>();

    static {
        SCENARIOS.put("roundtrip", RoundTrip::run);
        SCENARIOS.put("idempotent", RoundTrip::idempotent);
        SCENARIOS.put("group", Groups::leaveAndKill);
        SCENARIOS.put("assignor", Groups::assignor);
        SCENARIOS.put("static-member", Groups::staticMember);
        SCENARIOS.put("pattern", Patterns::run);
        SCENARIOS.put("member", Groups::memberProcess);
        SCENARIOS.put("offsets", Offsets::run);
        SCENARIOS.put("share", Shares::run);
        SCENARIOS.put("admin", Admins::run);
        SCENARIOS.put("administration", Administration::run);
        SCENARIOS.put("move-log-dir", LogDirs::move);
        SCENARIOS.put("telemetry", Telemetry::run);
        SCENARIOS.put("logins", Logins::run);
        SCENARIOS.put("sustain", Sustain::run);
    }

    public static void main(String[] args) {
        if (args.length < 2 || !SCENARIOS.containsKey(args[1])) {
            System.err.println("usage: java Probe BOOTSTRAP SCENARIO [ARGUMENT ...]; scenarios: " + SCENARIOS.keySet());
            System.exit(2);
        }
        Map<String, Object> found = new TreeMap<>();
        List<String> arguments = Arrays.asList(args).subList(2, args.length);
        int code = 0;
        try {
            SCENARIOS.get(args[1]).run(args[0], arguments, found);
            found.put("ok", true);
        } catch (Throwable failure) {
            Throwable cause = failure instanceof ExecutionException ? failure.getCause() : failure;
            found.put("ok", false);
            found.put("error", cause.toString());
            failure.printStackTrace();
            code = 1;
        }
        found.put("scenario", args[1]);
        System.out.println(json(found));
        System.out.flush();
        Runtime.getRuntime().halt(code);
    }

    static void require(boolean holds, String otherwise, Object... values) {
        if (!holds) {
            throw new AssertionError(String.format(otherwise, values));
        }
    }

    static String unique(String prefix) {
        return prefix + "-" + Long.toString(System.nanoTime(), 36);
    }

    static KafkaProducer<byte[], byte[]> producer(String bootstrap, Map<String, Object> options) {
        Map<String, Object> all = new HashMap<>(Map.of(
                "bootstrap.servers", bootstrap,
                "key.serializer", ByteArraySerializer.class,
                "value.serializer", ByteArraySerializer.class,
                "delivery.timeout.ms", 60_000));
        all.putAll(options);
        return new KafkaProducer<>(all);
    }

    static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, Map<String, Object> options) {
        Map<String, Object> all = new HashMap<>(Map.of(
                "bootstrap.servers", bootstrap,
                "key.deserializer", ByteArrayDeserializer.class,
                "value.deserializer", ByteArrayDeserializer.class,
                "auto.offset.reset", "earliest",
                "enable.auto.commit", false));
        all.putAll(options);
        return new KafkaConsumer<>(all);
    }

    static Admin admin(String bootstrap) {
        Properties options = new Properties();
        options.put("bootstrap.servers", bootstrap);
        return Admin.create(options);
    }

    static String createTopic(String bootstrap, String prefix, int partitions) throws Exception {
        String topic = unique(prefix);
        try (Admin admin = admin(bootstrap)) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
            // Apache Kafka says who leads some milliseconds before the leader serves, and a record sent with acks=0
            // in that moment is lost without a word. The admin client asks again until it is answered.
            Map<TopicPartition, OffsetSpec> every = new HashMap<>();
            for (int p = 0; p < partitions; p++) {
                every.put(new TopicPartition(topic, p), OffsetSpec.latest());
            }
            admin.listOffsets(every).all().get();
        }
        return topic;
    }

    private static String json(Object value) {
        if (value instanceof Map<?, ?> map) {
            StringBuilder text = new StringBuilder("{");
            map.forEach((k, v) -> text.append(text.length() > 1 ? ", " : "").append(json(k.toString())).append(": ")
                    .append(json(v)));
            return text.append("}").toString();
        }
        if (value instanceof Iterable<?> items) {
            StringBuilder text = new StringBuilder("[");
            items.forEach(v -> text.append(text.length() > 1 ? ", " : "").append(json(v)));
            return text.append("]").toString();
        }
        if (value instanceof Number || value instanceof Boolean || value == null) {
            return String.valueOf(value);
        }
        String escaped = value.toString().replace("\\", "\\\\").replace("\"", "\\\"").replaceAll("\\p{Cntrl}", " ");
        return "\"" + escaped + "\"";
    }
}
