import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/**
 * Transactions with kafka-clients from 3.0 on: {@code java Transactions BOOTSTRAP SCENARIO}.
 *
 * <p>A program of its own that uses nothing newer, so that it runs with older jars, which speak the older protocol.
 */
public final class Transactions {
    private static final int PARTITIONS = 2;

    private Transactions() {}

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0];
        boolean ok = true;
        String error = "";
        try {
            switch (args[1]) {
                case "ends" -> ends(bootstrap);
                case "fencing" -> fencing(bootstrap);
                case "offsets" -> offsets(bootstrap);
                case "time-out" -> timeOut(bootstrap);
                case "admin" -> admin(bootstrap);
                default -> throw new IllegalArgumentException(args[1]);
            }
        } catch (Throwable failure) {
            failure.printStackTrace();
            ok = false;
            error = failure.toString().replaceAll("[\"\\\\\\p{Cntrl}]", " ");
        }
        System.out.printf("{\"scenario\": \"%s\", \"ok\": %b, \"error\": \"%s\", \"version\": \"%s\"}%n", args[1], ok,
                error, AppInfoParser.getVersion());
        System.out.flush();
        Runtime.getRuntime().halt(ok ? 0 : 1);
    }

    private static void require(boolean holds, String otherwise, Object... values) {
        if (!holds) {
            throw new AssertionError(String.format(otherwise, values));
        }
    }

    private static Admin client(String bootstrap) {
        return Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    private static String topic(String bootstrap) throws Exception {
        String topic = "java-txn-" + Long.toString(System.nanoTime(), 36);
        try (Admin admin = client(bootstrap)) {
            admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get();
        }
        return topic;
    }

    private static KafkaProducer<String, String> producer(String bootstrap, String id, int timeoutMs) {
        KafkaProducer<String, String> producer = new KafkaProducer<>(Map.of(
                "bootstrap.servers", bootstrap, "transactional.id", id, "transaction.timeout.ms", timeoutMs,
                "key.serializer", StringSerializer.class, "value.serializer", StringSerializer.class));
        producer.initTransactions();
        return producer;
    }

    private static KafkaProducer<String, String> producer(String bootstrap, String id) {
        return producer(bootstrap, id, 60_000);
    }

    private static KafkaConsumer<String, String> consumer(String bootstrap, String group) {
        return new KafkaConsumer<>(Map.of(
                "bootstrap.servers", bootstrap, "group.id", group, "isolation.level", "read_committed",
                "auto.offset.reset", "earliest", "enable.auto.commit", false,
                "key.deserializer", StringDeserializer.class, "value.deserializer", StringDeserializer.class));
    }

    /** The committed values of each partition, in their order. */
    private static Map<Integer, List<String>> read(String bootstrap, String topic) {
        Map<Integer, List<String>> found = new HashMap<>(Map.of(0, new ArrayList<>(), 1, new ArrayList<>()));
        List<TopicPartition> all = List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
        try (KafkaConsumer<String, String> consumer = consumer(bootstrap, topic + "-reader")) {
            consumer.assign(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            while (all.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
                consumer.poll(Duration.ofMillis(200)).forEach(record -> found.get(record.partition()).add(record.value()));
            }
        }
        return found;
    }

    private static void ends(String bootstrap) throws Exception {
        String topic = topic(bootstrap);
        List<String> wanted = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer(bootstrap, topic)) {
            for (int number = 0; number < 50; number++) {
                producer.beginTransaction();
                for (int copy = 0; copy < 4; copy++) {
                    producer.send(new ProducerRecord<>(topic, copy % PARTITIONS, null, number + "-" + copy / PARTITIONS));
                }
                if (number % 3 == 2) {
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                    wanted.addAll(List.of(number + "-0", number + "-1"));
                }
            }
            producer.beginTransaction();  // without anything in it
            producer.commitTransaction();
            producer.beginTransaction();
            producer.abortTransaction();
        }
        require(read(bootstrap, topic).equals(Map.of(0, wanted, 1, wanted)), "read %s", read(bootstrap, topic));
    }

    private static boolean isFenced(Throwable error) {
        return error != null && (error instanceof ProducerFencedException || error instanceof InvalidProducerEpochException
                || isFenced(error.getCause()));
    }

    private static void fencing(String bootstrap) throws Exception {
        String topic = topic(bootstrap);
        try (KafkaProducer<String, String> zombie = producer(bootstrap, topic)) {
            zombie.beginTransaction();
            zombie.send(new ProducerRecord<>(topic, 0, null, "zombie")).get();
            try (KafkaProducer<String, String> heir = producer(bootstrap, topic)) {
                heir.beginTransaction();
                heir.send(new ProducerRecord<>(topic, 0, null, "heir")).get();
                try {
                    zombie.commitTransaction();
                    throw new AssertionError("the zombie committed");
                } catch (KafkaException error) {
                    require(isFenced(error), "%s", error);
                }
                heir.commitTransaction();
            }
        }
        require(read(bootstrap, topic).get(0).equals(List.of("heir")), "read %s", read(bootstrap, topic));
    }

    private static void offsets(String bootstrap) throws Exception {
        String topic = topic(bootstrap);
        TopicPartition first = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer = producer(bootstrap, topic);
                KafkaConsumer<String, String> consumer = consumer(bootstrap, topic)) {
            for (int offset = 1; offset < 8; offset++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, 0, null, "" + offset));
                producer.sendOffsetsToTransaction(Map.of(first, new OffsetAndMetadata(offset)),
                        new ConsumerGroupMetadata(topic));
                if (offset % 2 == 0) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
                OffsetAndMetadata committed = consumer.committed(Set.of(first)).get(first);
                long wanted = offset - offset % 2;
                require((committed == null ? 0 : committed.offset()) == wanted, "%s after %s", committed, offset);
            }
        }
        require(read(bootstrap, topic).get(0).equals(List.of("2", "4", "6")), "read %s", read(bootstrap, topic));
    }

    private static TransactionDescription described(Admin admin, String id) throws Exception {
        return admin.describeTransactions(List.of(id)).description(id).get();
    }

    private static void timeOut(String bootstrap) throws Exception {
        String topic = topic(bootstrap);
        try (Admin admin = client(bootstrap); KafkaProducer<String, String> slow = producer(bootstrap, topic, 1_000)) {
            slow.beginTransaction();
            slow.send(new ProducerRecord<>(topic, 0, null, "slow")).get();
            while (described(admin, topic).state() != TransactionState.COMPLETE_ABORT) {
                Thread.sleep(50);
            }
            try {
                slow.commitTransaction();
                throw new AssertionError("a transaction that has timed out was committed");
            } catch (KafkaException error) {
                require(isFenced(error), "%s", error);
            }
            try (KafkaProducer<String, String> next = producer(bootstrap, topic)) {
                next.beginTransaction();
                next.send(new ProducerRecord<>(topic, 0, null, "next"));
                next.commitTransaction();
            }
        }
        require(read(bootstrap, topic).get(0).equals(List.of("next")), "read %s", read(bootstrap, topic));
    }

    private static void admin(String bootstrap) throws Exception {
        String topic = topic(bootstrap);
        TopicPartition first = new TopicPartition(topic, 0);
        try (Admin admin = client(bootstrap); KafkaProducer<String, String> producer = producer(bootstrap, topic)) {
            require(described(admin, topic).state() == TransactionState.EMPTY, "%s", described(admin, topic));
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, null, "open")).get();
            TransactionDescription open = described(admin, topic);
            require(open.state() == TransactionState.ONGOING, "%s", open);
            require(open.topicPartitions().equals(Set.of(first)), "%s", open);
            require(open.transactionTimeoutMs() == 60_000 && open.transactionStartTimeMs().isPresent(), "%s", open);
            Collection<TransactionListing> listed = admin.listTransactions().all().get();
            require(listed.stream().anyMatch(one -> one.transactionalId().equals(topic)
                    && one.state() == TransactionState.ONGOING && one.producerId() == open.producerId()), "%s", listed);
            ProducerState state = admin.describeProducers(List.of(first)).partitionResult(first).get().activeProducers().get(0);
            require(state.producerId() == open.producerId() && state.currentTransactionStartOffset().getAsLong() == 0, "%s", state);
            admin.abortTransaction(new AbortTransactionSpec(first, state.producerId(), (short) (state.producerEpoch()),
                    Math.max(0, state.coordinatorEpoch().orElse(0)))).all().get();
            state = admin.describeProducers(List.of(first)).partitionResult(first).get().activeProducers().get(0);
            require(state.currentTransactionStartOffset().isEmpty(), "%s", state);
            admin.fenceProducers(List.of(topic)).all().get();
            try {
                producer.commitTransaction();
                throw new AssertionError("a fenced producer committed");
            } catch (KafkaException error) {
                require(isFenced(error), "%s", error);
            }
            try {
                described(admin, topic + "-unknown");
                throw new AssertionError("described what is not there");
            } catch (ExecutionException error) {
                require(error.getCause().getClass().getSimpleName().equals("TransactionalIdNotFoundException"), "%s", error);
            }
        }
        require(read(bootstrap, topic).get(0).isEmpty(), "read %s", read(bootstrap, topic));
    }
}
