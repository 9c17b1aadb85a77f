import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.TopicPartition;

/** Commit, resume, seek, offsets for times, lag. */
final class Offsets {
    private static final int COUNT = 1000;
    private static final long FIRST_TIME_MS = 1_700_000_000_000L;

    private Offsets() {}

    static void run(String bootstrap, List<String> arguments, Map<String, Object> found) throws Exception {
        String topic = Probe.createTopic(bootstrap, "java-offsets", 1);
        String group = Probe.unique("java-offsets");
        TopicPartition partition = new TopicPartition(topic, 0);
        write(bootstrap, partition);
        commitAndResume(bootstrap, group, partition);
        seek(bootstrap, partition);
        times(bootstrap, partition);
        found.put("records", COUNT);
    }

    private static void write(String bootstrap, TopicPartition partition) throws Exception {
        try (var producer = Probe.producer(bootstrap, Map.of("acks", "all", "batch.size", 2000))) {
            for (int i = 0; i < COUNT; i++) {
                byte[] value = ("value " + i).getBytes();
                producer.send(new org.apache.kafka.clients.producer.ProducerRecord<>(
                        partition.topic(), 0, FIRST_TIME_MS + 1000L * i, null, value));
            }
        }
    }

    private static void commitAndResume(String bootstrap, String group, TopicPartition partition) {
        Map<String, Object> options = Map.of("group.id", group, "max.poll.records", 100);
        try (KafkaConsumer<byte[], byte[]> consumer = Probe.consumer(bootstrap, options)) {
            Probe.require(consumer.committed(Set.of(partition)).get(partition) == null, "a commit before the first");
            consumer.subscribe(List.of(partition.topic()));
            Probe.require(first(consumer).offset() == 0, "the first read does not begin at 0");
            consumer.commitSync(Map.of(partition, new OffsetAndMetadata(400, "half way")));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = Probe.consumer(bootstrap, options)) {
            OffsetAndMetadata committed = consumer.committed(Set.of(partition)).get(partition);
            Probe.require(committed.offset() == 400 && committed.metadata().equals("half way"), "committed %s", committed);
            consumer.subscribe(List.of(partition.topic()));
            long offset = first(consumer).offset();
            Probe.require(offset == 400, "resumed at %d, not 400", offset);
            long lag = consumer.currentLag(partition).orElse(-1);
            Probe.require(lag >= 0 && lag <= COUNT - 400, "lag %d", lag);
        }
    }

    private static void seek(String bootstrap, TopicPartition partition) {
        try (KafkaConsumer<byte[], byte[]> consumer = Probe.consumer(bootstrap, Map.of("max.poll.records", 10))) {
            consumer.assign(List.of(partition));
            for (long target : new long[] {777, 0, COUNT - 1, 3}) {
                consumer.seek(partition, target);
                ConsumerRecord<byte[], byte[]> record = first(consumer);
                String value = new String(record.value());
                Probe.require(record.offset() == target && value.equals("value " + target), "seek %d: %s", target, record);
            }
            consumer.seekToEnd(List.of(partition));
            Probe.require(consumer.position(partition) == COUNT, "end at %d", consumer.position(partition));
            Probe.require(consumer.poll(Duration.ofMillis(200)).isEmpty(), "records past the end");
            consumer.seek(partition, COUNT + 50);   // out of range: the reset policy says earliest
            Probe.require(first(consumer).offset() == 0, "no reset to the beginning after an offset out of range");
        }
    }

    private static void times(String bootstrap, TopicPartition partition) {
        try (KafkaConsumer<byte[], byte[]> consumer = Probe.consumer(bootstrap, Map.of())) {
            long[][] cases = {{0, 0}, {1000, 1}, {1001, 2}, {500_500, 501}, {999_000, 999}, {-5000, 0}};
            for (long[] item : cases) {
                OffsetAndTimestamp at = consumer.offsetsForTimes(Map.of(partition, FIRST_TIME_MS + item[0])).get(partition);
                Probe.require(at != null && at.offset() == item[1], "offset for +%d ms: %s", item[0], at);
                Probe.require(at.timestamp() == FIRST_TIME_MS + 1000 * item[1], "its time: %s", at);
            }
            var none = consumer.offsetsForTimes(Map.of(partition, FIRST_TIME_MS + 1_000_000L)).get(partition);
            Probe.require(none == null, "an offset for a time after the last: %s", none);
            Probe.require(consumer.beginningOffsets(List.of(partition)).get(partition) == 0, "beginning");
            Probe.require(consumer.endOffsets(List.of(partition)).get(partition) == COUNT, "end");
        }
    }

    private static ConsumerRecord<byte[], byte[]> first(KafkaConsumer<byte[], byte[]> consumer) {
        long deadline = System.nanoTime() + 30_000_000_000L;
        while (System.nanoTime() < deadline) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
            if (!records.isEmpty()) {
                return records.iterator().next();
            }
        }
        throw new AssertionError("no record within 30 s");
    }
}
