import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

/** What is written comes back, with each codec that this version has: keys, nulls, times, offsets. */
final class Records {
    private static final int COUNT = 100;
    private static final long FIRST_MS = 1_700_000_000_000L;

    private Records() {}

    static void run(String bootstrap, String prefix) throws Exception {
        String topic = prefix + "-records";
        List<String> codecs = new ArrayList<>(List.of("none", "gzip", "snappy", "lz4"));
        if (Every.isAtLeast(2, 1)) {
            codecs.add("zstd");
        }
        for (int i = 0; i < codecs.size(); i++) {
            write(bootstrap, topic, codecs.get(i), i * COUNT);
        }
        read(bootstrap, topic, codecs.size() * COUNT);
    }

    private static ProducerRecord<String, String> record(String topic, int i) {
        String key = i % 7 == 0 ? null : "key-" + i % 10;
        String value = i % 11 == 0 ? null : "value " + i + " ".repeat(i % 50);
        return new ProducerRecord<>(topic, i % Every.PARTITIONS, FIRST_MS + i, key, value);
    }

    private static void write(String bootstrap, String topic, String codec, int first) throws Exception {
        try (KafkaProducer<String, String> producer = Every.producer(bootstrap,
                "acks", "all", "compression.type", codec, "linger.ms", 5)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = first; i < first + COUNT; i++) {
                sent.add(producer.send(record(topic, i)));
            }
            for (int i = first; i < first + COUNT; i++) {
                RecordMetadata written = sent.get(i - first).get();
                Every.require(written.offset() == i / Every.PARTITIONS, "%s: record %d is %s", codec, i, written);
            }
        }
    }

    private static void read(String bootstrap, String topic, int count) throws Exception {
        List<TopicPartition> all = List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
        try (KafkaConsumer<String, String> consumer = Every.consumer(bootstrap, "group.id", topic + "-reader")) {
            consumer.assign(all);
            consumer.seekToBeginning(all);
            int found = 0;
            long deadline = System.nanoTime() + Every.PATIENCE_NS;
            while (found < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> record : Every.poll(consumer)) {
                    ProducerRecord<String, String> sent =
                            record(topic, (int) record.offset() * Every.PARTITIONS + record.partition());
                    String got = record.key() + " " + record.value() + " " + record.timestamp();
                    String wanted = sent.key() + " " + sent.value() + " " + sent.timestamp();
                    Every.require(got.equals(wanted), "%s instead of %s", got, wanted);
                    found++;
                }
            }
            Every.require(found == count, "%d of %d records", found, count);
            for (TopicPartition one : all) {
                Every.require(consumer.position(one) == count / Every.PARTITIONS, "at %d", consumer.position(one));
            }
        }
    }
}
