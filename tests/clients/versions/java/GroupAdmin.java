import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** The admin client of 2.0: groups with their offsets, more partitions, deleting records. */
final class GroupAdmin {
    private GroupAdmin() {}

    static void run(String bootstrap, String prefix) throws Exception {
        String topic = prefix + "-administered";
        String group = topic + "-group";
        TopicPartition first = new TopicPartition(topic, 0);
        try (AdminClient admin = AdminClient.create(Every.options(bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
            write(bootstrap, topic, 5);
            try (KafkaConsumer<String, String> consumer = Every.consumer(bootstrap, "group.id", group)) {
                consumer.assign(List.of(first));
                consumer.commitSync(Map.of(first, new OffsetAndMetadata(4, "note")));
            }
            Every.require(admin.listConsumerGroups().all().get().stream().anyMatch(one -> one.groupId().equals(group)),
                    "%s is not listed", group);
            ConsumerGroupDescription described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            Every.require(described.members().isEmpty() && described.groupId().equals(group), "%s", described);
            OffsetAndMetadata offset =
                    admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(first);
            Every.require(offset.offset() == 4 && offset.metadata().equals("note"), "%s", offset);
            admin.deleteConsumerGroups(List.of(group)).all().get();
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
            Every.require(Topics.describe(admin, topic).partitions().size() == 4, "more partitions");
            long low = admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(3))).lowWatermarks().get(first).get()
                    .lowWatermark();
            Every.require(low == 3, "low watermark %d", low);
            admin.deleteTopics(List.of(topic)).all().get();
        }
    }

    static void write(String bootstrap, String topic, int count) throws Exception {
        try (KafkaProducer<String, String> producer = Every.producer(bootstrap)) {
            for (int i = 0; i < count; i++) {
                producer.send(new ProducerRecord<>(topic, 0, "key", "value " + i)).get();
            }
        }
    }
}
