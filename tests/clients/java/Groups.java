import java.io.BufferedReader;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** Groups of the classic protocol: sharing, leaving, dying, static members, all four assignors. */
final class Groups {
    private static final int PARTITIONS = 6;
    private static final int SESSION_TIMEOUT_MS = 6000;   // the least that brokers allow by default

    private Groups() {}

    /** One member: polls in its own thread, notes what it sees, commits after each poll. */
    static final class Member implements AutoCloseable {
        final KafkaConsumer<byte[], byte[]> consumer;
        volatile Set<TopicPartition> assignment = Set.of();
        volatile int generation;
        volatile Exception failure;
        private volatile boolean stopping;
        private final Thread thread;

        Member(String bootstrap, String group, String topic, Set<Integer> seen, Map<String, Object> extra) {
            Map<String, Object> options = new HashMap<>(Map.of(
                    "group.id", group, "group.protocol", "classic", "session.timeout.ms", SESSION_TIMEOUT_MS,
                    "heartbeat.interval.ms", 300));
            options.putAll(extra);
            consumer = Probe.consumer(bootstrap, options);
            consumer.subscribe(List.of(topic));
            thread = new Thread(() -> work(seen));
            thread.start();
        }

        private void work(Set<Integer> seen) {
            try (consumer) {
                while (!stopping) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(50))) {
                        seen.add(ByteBuffer.wrap(record.value()).getInt());
                    }
                    assignment = Set.copyOf(consumer.assignment());
                    generation = consumer.groupMetadata().generationId();
                    commit();
                }
            } catch (Exception exception) {
                failure = exception;
                exception.printStackTrace();
            }
        }

        private void commit() {
            try {
                consumer.commitSync();
            } catch (org.apache.kafka.common.errors.RebalanceInProgressException
                    | org.apache.kafka.clients.consumer.CommitFailedException expected) {
                // The partitions are moving: whoever gets them reads the records again.
            }
        }

        @Override
        public void close() throws InterruptedException {
            stopping = true;
            thread.join();
        }
    }

    /** Three members; one leaves, one (a process of its own) is killed; nothing is lost, the last has everything. */
    static void leaveAndKill(String bootstrap, List<String> arguments, Map<String, Object> found) throws Exception {
        String topic = Probe.createTopic(bootstrap, "java-group", PARTITIONS);
        String group = Probe.unique("java-group");
        Map<String, Object> assignor = assignorOption(arguments.isEmpty() ? "cooperative-sticky" : arguments.get(0));
        Set<Integer> seen = ConcurrentHashMap.newKeySet();
        Process killed = startMember(bootstrap, group, topic, arguments.isEmpty() ? "cooperative-sticky" : arguments.get(0));
        try (Member stays = new Member(bootstrap, group, topic, seen, assignor);
                Member leaves = new Member(bootstrap, group, topic, seen, assignor)) {
            write(bootstrap, topic, 0, 2000);
            Admins.await(() -> stays.assignment.size() == 2 && leaves.assignment.size() == 2,
                    "three members did not share six partitions evenly");
            Admins.await(() -> waitForLine(killed, "assigned 2"), "the third member was not given two partitions");
            leaves.close();
            Admins.await(() -> stays.assignment.size() == 3, "the partitions of the member that left were not shared out");
            killed.destroyForcibly().waitFor();
            write(bootstrap, topic, 2000, 4000);
            Admins.await(() -> stays.assignment.size() == PARTITIONS, "the killed member's partitions were not taken over");
            // What the killed member read but did not tell is known only as committed: read from there on by `stays`.
            Set<Integer> wanted = new TreeSet<>();
            for (int i = 2000; i < 4000; i++) {
                wanted.add(i);
            }
            Admins.await(() -> seen.containsAll(wanted), "records after the kill are missing");
            Probe.require(stays.failure == null && leaves.failure == null, "failed: %s %s", stays.failure, leaves.failure);
        } finally {
            killed.destroyForcibly();
        }
        found.put("records", 4000);
    }

    /** Arguments: an assignor. Two members share, both at work; a third joins; all records are read. */
    static void assignor(String bootstrap, List<String> arguments, Map<String, Object> found) throws Exception {
        String topic = Probe.createTopic(bootstrap, "java-assignor", PARTITIONS);
        String group = Probe.unique("java-assignor");
        Map<String, Object> option = assignorOption(arguments.get(0));
        Set<Integer> seen = ConcurrentHashMap.newKeySet();
        write(bootstrap, topic, 0, 3000);
        try (Member one = new Member(bootstrap, group, topic, seen, option);
                Member two = new Member(bootstrap, group, topic, seen, option)) {
            Admins.await(() -> disjoint(PARTITIONS, one, two) && one.assignment.size() == 3, "two members do not share");
            try (Member three = new Member(bootstrap, group, topic, seen, option)) {
                Admins.await(() -> disjoint(PARTITIONS, one, two, three) && three.assignment.size() == 2,
                        "a third member was not given its part");
            }
            Admins.await(() -> disjoint(PARTITIONS, one, two), "after the third left, two members do not share");
            Admins.await(() -> seen.size() == 3000, "not all records were read");
        }
        found.put("assignor", arguments.get(0));
    }

    /** A static member that comes back within its session keeps its partitions, and nobody else is disturbed. */
    static void staticMember(String bootstrap, List<String> arguments, Map<String, Object> found) throws Exception {
        String topic = Probe.createTopic(bootstrap, "java-static", PARTITIONS);
        String group = Probe.unique("java-static");
        Set<Integer> seen = ConcurrentHashMap.newKeySet();
        Map<String, Object> first = new HashMap<>(assignorOption("range"));
        Map<String, Object> second = new HashMap<>(first);
        first.put("group.instance.id", "first");
        second.put("group.instance.id", "second");
        try (Member one = new Member(bootstrap, group, topic, seen, first)) {
            Set<TopicPartition> before;
            try (Member two = new Member(bootstrap, group, topic, seen, second)) {
                Admins.await(() -> disjoint(PARTITIONS, one, two) && two.assignment.size() == 3, "two members do not share");
                before = two.assignment;
            }
            int generation = one.generation;
            try (Member again = new Member(bootstrap, group, topic, seen, second)) {
                Admins.await(() -> again.assignment.size() == 3, "the static member got nothing back");
                Probe.require(again.assignment.equals(before), "it had %s and got %s", before, again.assignment);
                int now = one.generation;
                Probe.require(now == generation, "generation went from %d to %d", generation, now);
            }
        }
        found.put("members", 2);
    }

    /** Arguments: group, topic, assignor. Runs until it is killed; says its assignment whenever it changes. */
    static void memberProcess(String bootstrap, List<String> arguments, Map<String, Object> found) throws Exception {
        Map<String, Object> option = assignorOption(arguments.get(2));
        Member member = new Member(bootstrap, arguments.get(0), arguments.get(1), ConcurrentHashMap.newKeySet(), option);
        int said = -1;
        while (member.failure == null) {
            if (member.assignment.size() != said) {
                said = member.assignment.size();
                System.out.println("assigned " + said);
            }
            Thread.sleep(20);
        }
        throw member.failure;
    }

    private static Process startMember(String bootstrap, String group, String topic, String assignor) throws Exception {
        return new ProcessBuilder(
                ProcessHandle.current().info().command().orElse("java"),
                "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", System.getProperty("java.class.path"),
                "Probe", bootstrap, "member", group, topic, assignor)
                .redirectError(ProcessBuilder.Redirect.INHERIT).start();
    }

    private static boolean waitForLine(Process process, String wanted) throws Exception {
        BufferedReader reader = process.inputReader();
        while (reader.ready()) {
            if (reader.readLine().equals(wanted)) {
                return true;
            }
        }
        Probe.require(process.isAlive(), "the third member ended");
        return false;
    }

    private static boolean disjoint(int count, Member... members) {
        Set<TopicPartition> all = new HashSet<>();
        int total = 0;
        for (Member member : members) {
            Probe.require(member.failure == null, "a member failed: %s", member.failure);
            all.addAll(member.assignment);
            total += member.assignment.size();
        }
        return all.size() == count && total == count;
    }

    private static Map<String, Object> assignorOption(String name) {
        String type = switch (name) {
            case "range" -> "RangeAssignor";
            case "roundrobin" -> "RoundRobinAssignor";
            case "sticky" -> "StickyAssignor";
            case "cooperative-sticky" -> "CooperativeStickyAssignor";
            default -> throw new IllegalArgumentException("no assignor " + name);
        };
        return Map.of("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + type);
    }

    private static void write(String bootstrap, String topic, int from, int to) {
        try (KafkaProducer<byte[], byte[]> producer = Probe.producer(bootstrap, Map.of("acks", "all"))) {
            for (int i = from; i < to; i++) {
                byte[] value = ByteBuffer.allocate(4).putInt(i).array();
                producer.send(new ProducerRecord<>(topic, i % PARTITIONS, null, value));
            }
        }
    }
}
