import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ConcurrentTransactionsException;

/** The admin client of 3.3: producers and transactions, fencing, offsets of several groups, topics by their id. */
final class Producers {
    private Producers() {}

    static void run(String bootstrap, String prefix) throws Exception {
        String topic = prefix + "-producers";
        TopicPartition first = new TopicPartition(topic, 0);
        try (AdminClient admin = AdminClient.create(Every.options(bootstrap));
                KafkaProducer<String, String> producer = Every.producer(bootstrap, "transactional.id", topic)) {
            var id = admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).topicId(topic).get();
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, null, "open")).get();
            TransactionDescription open = admin.describeTransactions(List.of(topic)).description(topic).get();
            Every.require(open.state() == TransactionState.ONGOING && open.topicPartitions().equals(Set.of(first)), "%s", open);
            Every.require(admin.listTransactions().all().get().stream()
                    .anyMatch(one -> one.transactionalId().equals(topic)), "%s is not listed", topic);
            ProducerState state =
                    admin.describeProducers(List.of(first)).partitionResult(first).get().activeProducers().get(0);
            Every.require(state.producerId() == open.producerId(), "%s", state);
            fence(admin, topic);
            for (String group : List.of(topic + "-a", topic + "-b")) {
                admin.alterConsumerGroupOffsets(group, Map.of(first, new OffsetAndMetadata(0))).all().get();
            }
            ListConsumerGroupOffsetsSpec all = new ListConsumerGroupOffsetsSpec();
            var offsets = admin.listConsumerGroupOffsets(Map.of(topic + "-a", all, topic + "-b", all)).all().get();
            Every.require(offsets.values().stream().allMatch(one -> one.containsKey(first)), "%s", offsets);
            var ids = org.apache.kafka.common.TopicCollection.ofTopicIds(List.of(id));
            Every.require(admin.describeTopics(ids).allTopicIds().get().get(id).name().equals(topic), "by id");
            int leader = admin.describeTopics(ids).allTopicIds().get().get(id).partitions().get(0).leader().id();
            Every.require(admin.describeLogDirs(Set.of(leader)).allDescriptions().get().get(leader).values().stream()
                    .anyMatch(dir -> dir.replicaInfos().containsKey(first)), "%s is in no log dir", first);
            admin.deleteTopics(ids).all().get();
        }
    }

    /** Before 3.6 the client gives the error back that it gets while the open transaction is ended. */
    private static void fence(AdminClient admin, String id) throws Exception {
        while (true) {
            try {
                admin.fenceProducers(List.of(id)).all().get();
                return;
            } catch (ExecutionException error) {
                Every.require(error.getCause() instanceof ConcurrentTransactionsException, "%s", error);
            }
        }
    }
}
