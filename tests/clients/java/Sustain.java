import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Writes and reads until the standard input ends, whatever happens to the cluster meanwhile. */
final class Sustain {
    private static final long TICK_MS = 50;
    private static final long END_MS = 180_000;

    private Sustain() {}

    /** Argument: topic. Finds what was acknowledged (partition, offset, value), and how much of it was not read. */
    static void run(String bootstrap, List<String> arguments, Map<String, Object> found) throws Exception {
        String topic = arguments.get(0);
        List<List<Object>> acknowledged = Collections.synchronizedList(new ArrayList<>());
        List<String> errors = Collections.synchronizedList(new ArrayList<>());
        Set<String> seen = Collections.synchronizedSet(new HashSet<>());
        AtomicBoolean over = new AtomicBoolean();
        Thread reader = new Thread(() -> read(bootstrap, topic, seen, over));
        reader.start();
        try (KafkaProducer<byte[], byte[]> producer = Probe.producer(bootstrap, Map.of(
                "acks", "all", "enable.idempotence", true, "delivery.timeout.ms", 300_000, "max.block.ms", 120_000,
                "request.timeout.ms", 15_000, "linger.ms", 5))) {
            for (int number = 0; open(); number++) {
                String value = "java-" + number;
                producer.send(new ProducerRecord<>(topic, value.getBytes(StandardCharsets.UTF_8)), (where, error) -> {
                    if (error != null) {
                        errors.add(error.toString());
                    } else {
                        acknowledged.add(List.of(where.partition(), where.offset(), value));
                    }
                });
            }
            producer.flush();
        }
        long deadline = System.currentTimeMillis() + END_MS;
        while (unseen(acknowledged, seen) > 0 && System.currentTimeMillis() < deadline) {
            Thread.sleep(TICK_MS);
        }
        over.set(true);
        reader.join();
        found.put("acknowledged", acknowledged);
        found.put("errors", errors.subList(0, Math.min(10, errors.size())));
        found.put("unseen", unseen(acknowledged, seen));
    }

    private static final AtomicBoolean ENDED = new AtomicBoolean();
    private static Thread input;

    /** Waits a tick; false when the standard input has ended. */
    private static boolean open() throws InterruptedException {
        if (input == null) {
            input = new Thread(() -> {
                try {
                    while (System.in.read() >= 0) {
                        // what is said does not matter
                    }
                } catch (java.io.IOException ended) {
                    // as good as an end
                }
                ENDED.set(true);
            });
            input.setDaemon(true);
            input.start();
        }
        Thread.sleep(TICK_MS);
        return !ENDED.get();
    }

    private static int unseen(List<List<Object>> acknowledged, Set<String> seen) {
        synchronized (acknowledged) {
            return (int) acknowledged.stream().filter(row -> !seen.contains((String) row.get(2))).count();
        }
    }

    private static void read(String bootstrap, String topic, Set<String> seen, AtomicBoolean over) {
        try (KafkaConsumer<byte[], byte[]> consumer = Probe.consumer(bootstrap, Map.of(
                "group.id", topic + "-java", "enable.auto.commit", true, "session.timeout.ms", 10_000))) {
            consumer.subscribe(List.of(topic));
            while (!over.get()) {
                consumer.poll(Duration.ofMillis(200))
                        .forEach(record -> seen.add(new String(record.value(), StandardCharsets.UTF_8)));
            }
        }
    }
}
