import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Two members share the partitions and commit; a third goes on where they stopped. */
final class Groups {
    private static final int COUNT = 40;

    private Groups() {}

    static void run(String bootstrap, String prefix) throws Exception {
        all(bootstrap, prefix, "classic");
    }

    static void all(String bootstrap, String prefix, String protocol) throws Exception {
        String topic = prefix + "-group";
        String group = topic + "-" + protocol;
        Set<String> seen = new HashSet<>(read(bootstrap, topic, group, protocol, write(bootstrap, topic, protocol)));
        Set<String> more = write(bootstrap, topic, protocol + "-more");
        try (KafkaConsumer<String, String> third = consumer(bootstrap, group, protocol)) {
            third.subscribe(List.of(topic));
            List<String> found = new ArrayList<>();
            long deadline = System.nanoTime() + Every.PATIENCE_NS;
            while (found.size() < more.size() && System.nanoTime() < deadline) {
                Every.poll(third).forEach(record -> found.add(record.value()));
            }
            Every.require(found.size() == more.size() && more.equals(new HashSet<>(found)),
                    "%s goes on with %s, not with %s; before: %d", group, found, more, seen.size());
            third.commitSync();
        }
    }

    private static Set<String> write(String bootstrap, String topic, String name) throws Exception {
        Set<String> written = new HashSet<>();
        try (KafkaProducer<String, String> producer = Every.producer(bootstrap)) {
            for (int i = 0; i < COUNT; i++) {
                producer.send(new ProducerRecord<>(topic, i % Every.PARTITIONS, null, name + i)).get();
                written.add(name + i);
            }
        }
        return written;
    }

    private static KafkaConsumer<String, String> consumer(String bootstrap, String group, String protocol) {
        Object[] classic = {"group.id", group};
        Object[] newer = {"group.id", group, "group.protocol", protocol};
        return Every.consumer(bootstrap, protocol.equals("classic") ? classic : newer);
    }

    /** What two members read and commit until both have a partition and all of `wanted` was seen. */
    private static Set<String> read(String bootstrap, String topic, String group, String protocol, Set<String> wanted)
            throws Exception {
        Set<String> seen = ConcurrentHashMap.newKeySet();
        List<Member> members = List.of(
                new Member(consumer(bootstrap, group, protocol), seen), new Member(consumer(bootstrap, group, protocol), seen));
        for (Member member : members) {
            member.consumer.subscribe(List.of(topic));
            member.start();
        }
        long deadline = System.nanoTime() + Every.PATIENCE_NS;
        while (!(seen.containsAll(wanted) && members.stream().allMatch(one -> one.partitions == 1))
                && members.stream().allMatch(one -> one.failure == null) && System.nanoTime() < deadline) {
            Thread.sleep(10);
        }
        String state = seen.size() + " records; partitions: " + members.get(0).partitions + " and " + members.get(1).partitions;
        boolean together = members.stream().allMatch(one -> one.partitions == 1);
        for (Member member : members) {
            member.isDone = true;
        }
        for (Member member : members) {
            member.join();
            if (member.failure != null) {
                throw new AssertionError("a member failed", member.failure);
            }
        }
        Every.require(together && seen.containsAll(wanted), "%s", state);
        return seen;
    }

    private static final class Member extends Thread {
        final KafkaConsumer<String, String> consumer;
        final Set<String> seen;
        volatile int partitions;
        volatile boolean isDone;
        volatile Throwable failure;

        Member(KafkaConsumer<String, String> consumer, Set<String> seen) {
            this.consumer = consumer;
            this.seen = seen;
        }

        @Override
        public void run() {
            try (KafkaConsumer<String, String> closing = consumer) {
                while (!isDone) {
                    ConsumerRecords<String, String> records = Every.poll(closing);
                    if (commits(records)) {
                        for (ConsumerRecord<String, String> record : records) {
                            seen.add(record.value());
                        }
                    }
                    partitions = closing.assignment().size();
                }
            } catch (Throwable error) {
                failure = error;
            }
        }

        /** Records that could not be committed, because their partition moved, come again to another member. */
        private boolean commits(ConsumerRecords<String, String> records) {
            if (records.isEmpty()) {
                return false;
            }
            try {
                consumer.commitSync();
                return true;
            } catch (CommitFailedException | org.apache.kafka.common.errors.RetriableException moved) {
                return false;
            }
        }
    }
}
