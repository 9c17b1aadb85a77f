import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

/** Transactions, since 0.11: what is committed is read, with headers and offsets; what is aborted or fenced is not. */
final class Transacting {
    private Transacting() {}

    static void run(String bootstrap, String prefix) throws Exception {
        String topic = prefix + "-transactions";
        try (AdminClient admin = AdminClient.create(Every.options(bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, Every.PARTITIONS, (short) 1))).all().get();
        }
        List<String> wanted = write(bootstrap, topic);
        wanted.addAll(fence(bootstrap, topic));
        List<String> found = read(bootstrap, topic);
        List<String> doubled = new ArrayList<>();
        wanted.forEach(value -> doubled.addAll(List.of(value, value)));
        doubled.sort(null);
        found.sort(null);
        Every.require(found.equals(doubled), "%s instead of %s", found, doubled);
    }

    private static KafkaProducer<String, String> producer(String bootstrap, String id) {
        KafkaProducer<String, String> producer = Every.producer(bootstrap, "transactional.id", id);
        producer.initTransactions();
        return producer;
    }

    private static void send(KafkaProducer<String, String> producer, String topic, String value) {
        for (int partition = 0; partition < Every.PARTITIONS; partition++) {
            ProducerRecord<String, String> record = new ProducerRecord<>(topic, partition, "key", value);
            record.headers().add("value", value.getBytes());
            producer.send(record);
        }
    }

    private static List<String> write(String bootstrap, String topic) throws Exception {
        List<String> wanted = new ArrayList<>();
        TopicPartition first = new TopicPartition(topic, 0);
        String group = topic + "-group";
        try (KafkaProducer<String, String> producer = producer(bootstrap, topic);
                KafkaConsumer<String, String> consumer = Every.consumer(bootstrap, "group.id", group)) {
            for (int number = 1; number <= 6; number++) {
                producer.beginTransaction();
                send(producer, topic, "number " + number);
                sendOffsets(producer, Map.of(first, new OffsetAndMetadata(number)), group);
                if (number % 2 == 0) {
                    producer.commitTransaction();
                    wanted.add("number " + number);
                } else {
                    producer.flush();
                    producer.abortTransaction();
                }
                OffsetAndMetadata committed = committed(consumer, first);
                long offset = committed == null ? 0 : committed.offset();
                Every.require(offset == number - number % 2, "%s is committed after %d", committed, number);
            }
        }
        return wanted;
    }

    /** By the group's name alone before 2.5, which 4.0 has no longer. */
    private static void sendOffsets(KafkaProducer<String, String> producer, Map<TopicPartition, OffsetAndMetadata> offsets,
            String group) throws Exception {
        if (Every.has(KafkaProducer.class, "sendOffsetsToTransaction", Map.class, String.class)) {
            Every.call(producer, "sendOffsetsToTransaction", new Class<?>[] {Map.class, String.class}, offsets, group);
            return;
        }
        Class<?> type = Class.forName("org.apache.kafka.clients.consumer.ConsumerGroupMetadata");
        Object metadata = type.getConstructor(String.class).newInstance(group);
        Every.call(producer, "sendOffsetsToTransaction", new Class<?>[] {Map.class, type}, offsets, metadata);
    }

    /** Of one partition before 2.4, which 4.0 has no longer. */
    private static OffsetAndMetadata committed(KafkaConsumer<String, String> consumer, TopicPartition partition)
            throws Exception {
        if (Every.has(KafkaConsumer.class, "committed", TopicPartition.class)) {
            return (OffsetAndMetadata)
                    Every.call(consumer, "committed", new Class<?>[] {TopicPartition.class}, partition);
        }
        Object all = Every.call(consumer, "committed", new Class<?>[] {java.util.Set.class}, java.util.Set.of(partition));
        return (OffsetAndMetadata) ((Map<?, ?>) all).get(partition);
    }

    private static List<String> fence(String bootstrap, String topic) throws Exception {
        KafkaProducer<String, String> zombie = producer(bootstrap, topic + "-fenced");
        zombie.beginTransaction();
        send(zombie, topic, "zombie");
        zombie.flush();
        try (KafkaProducer<String, String> heir = producer(bootstrap, topic + "-fenced")) {
            heir.beginTransaction();
            send(heir, topic, "heir");
            try {
                zombie.commitTransaction();
                throw new AssertionError("the zombie committed");
            } catch (KafkaException error) {
                Every.require(isFenced(error), "%s", error);
            }
            heir.commitTransaction();
        } finally {
            zombie.close();
        }
        return List.of("heir");
    }

    private static boolean isFenced(Throwable error) {
        String name = error == null ? "" : error.getClass().getSimpleName();
        return name.equals("ProducerFencedException") || name.equals("InvalidProducerEpochException")
                || (error != null && isFenced(error.getCause()));
    }

    private static List<String> read(String bootstrap, String topic) throws Exception {
        List<TopicPartition> all = List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
        List<String> found = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = Every.consumer(bootstrap,
                "group.id", topic + "-reader", "isolation.level", "read_committed")) {
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = new HashMap<>(consumer.endOffsets(all));
            long deadline = System.nanoTime() + Every.PATIENCE_NS;
            while (System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> record : Every.poll(consumer)) {
                    found.add(record.value());
                    String header = new String(record.headers().lastHeader("value").value());
                    Every.require(header.equals(record.value()), "header %s of %s", header, record.value());
                }
                if (all.stream().allMatch(one -> consumer.position(one) >= ends.get(one))) {
                    return found;
                }
            }
        }
        return found;
    }
}
