import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/** What was produced comes back: bytes, headers, nulls, times, and order within each partition. */
final class RoundTrip {
    private static final int PARTITIONS = 4;
    private static final int KEYS = 1000;
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    private RoundTrip() {}

    /** Arguments: codec, number of records. Once for each acks. */
    static void run(String bootstrap, List<String> arguments, Map<String, Object> found) throws Exception {
        String codec = arguments.get(0);
        int count = Integer.parseInt(arguments.get(1));
        for (String acks : List.of("0", "1", "all")) {
            String topic = Probe.createTopic(bootstrap, "java-roundtrip", PARTITIONS);
            Map<String, Object> options = new HashMap<>(Map.of(
                    "compression.type", codec, "acks", acks, "enable.idempotence", false, "linger.ms", 5,
                    "max.in.flight.requests.per.connection", 1));
            produce(bootstrap, topic, count, options);
            verify(bootstrap, topic, count);
        }
        found.put("codec", codec);
        found.put("records", 3 * count);
    }

    /** Arguments: number of records. Idempotent, many requests in flight: each record once and in order. */
    static void idempotent(String bootstrap, List<String> arguments, Map<String, Object> found) throws Exception {
        int count = Integer.parseInt(arguments.get(0));
        String topic = Probe.createTopic(bootstrap, "java-idempotent", PARTITIONS);
        Map<String, Object> options = Map.of(
                "acks", "all", "enable.idempotence", true, "batch.size", 4096, "linger.ms", 0,
                "max.in.flight.requests.per.connection", 5);
        produce(bootstrap, topic, count, options);
        verify(bootstrap, topic, count);
        found.put("records", count);
    }

    static void produce(String bootstrap, String topic, int count, Map<String, Object> options) {
        AtomicReference<Exception> failure = new AtomicReference<>();
        try (KafkaProducer<byte[], byte[]> producer = Probe.producer(bootstrap, options)) {
            for (int i = 0; i < count; i++) {
                producer.send(record(topic, i), (metadata, exception) -> {
                    if (exception != null) {
                        failure.compareAndSet(null, exception);
                    }
                });
            }
            producer.flush();
        }
        Probe.require(failure.get() == null, "a record was refused: %s", failure.get());
    }

    /** Record i: some without a key, some with a null or an empty value, some without headers. */
    private static ProducerRecord<byte[], byte[]> record(String topic, int i) {
        byte[] key = i % 10 == 9 ? null : ("key-" + i % KEYS).getBytes();
        Integer partition = key == null ? i % PARTITIONS : null;
        List<Header> headers = new ArrayList<>();
        headers.add(new RecordHeader("number", ByteBuffer.allocate(4).putInt(i).array()));
        if (i % 3 == 0) {
            headers.add(new RecordHeader("null", null));
            headers.add(new RecordHeader("empty", new byte[0]));
            headers.add(new RecordHeader("number", "twice \u00e9".getBytes(java.nio.charset.StandardCharsets.UTF_8)));
        }
        return new ProducerRecord<>(topic, partition, 1_700_000_000_000L + i, key, value(i), headers);
    }

    private static byte[] value(int i) {
        if (i % 17 == 0) {
            return null;
        }
        if (i % 13 == 0) {
            return new byte[0];
        }
        byte[] value = new byte[20 + i % 180];
        Arrays.fill(value, (byte) i);
        return value;
    }

    static void verify(String bootstrap, String topic, int count) {
        boolean[] seen = new boolean[count];
        int[] last = new int[PARTITIONS];
        long[] next = new long[PARTITIONS];
        Arrays.fill(last, -1);
        int total = 0;
        try (KafkaConsumer<byte[], byte[]> consumer = Probe.consumer(bootstrap, Map.of())) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (int p = 0; p < PARTITIONS; p++) {
                partitions.add(new TopicPartition(topic, p));
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            while (total < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    int p = record.partition();
                    Probe.require(record.offset() == next[p]++, "offset %d in %s-%d", record.offset(), topic, p);
                    int i = check(record);
                    Probe.require(i > last[p], "record %d after %d in %s-%d", i, last[p], topic, p);
                    Probe.require(!seen[i], "record %d twice", i);
                    last[p] = i;
                    seen[i] = true;
                    total++;
                }
            }
            Probe.require(total == count, "%d of %d records came back from %s", total, count, topic);
            long ends = consumer.endOffsets(partitions).values().stream().mapToLong(Long::longValue).sum();
            Probe.require(ends == count, "end offsets sum up to %d, not %d", ends, count);
        }
    }

    private static int check(ConsumerRecord<byte[], byte[]> record) {
        int i = ByteBuffer.wrap(record.headers().headers("number").iterator().next().value()).getInt();
        ProducerRecord<byte[], byte[]> sent = record(record.topic(), i);
        Probe.require(Arrays.equals(sent.key(), record.key()), "key of record %d", i);
        Probe.require(Arrays.equals(sent.value(), record.value()), "value of record %d", i);
        Probe.require(sent.headers().equals(record.headers()), "headers of record %d: %s", i, record.headers());
        Probe.require(sent.timestamp() == record.timestamp(), "time of record %d: %d", i, record.timestamp());
        return i;
    }
}
