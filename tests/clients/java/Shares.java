import java.io.BufferedReader;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Share groups: {@code java Probe BOOTSTRAP share PART [ARGUMENT ...]}. */
final class Shares {
    private Shares() {}

    static void run(String bootstrap, List<String> arguments, Map<String, Object> found) throws Exception {
        List<String> rest = arguments.subList(1, arguments.size());
        switch (arguments.get(0)) {
            case "together" -> together(bootstrap, found);
            case "acknowledge" -> acknowledge(bootstrap);
            case "dead-letters" -> deadLetters(bootstrap, Boolean.parseBoolean(rest.get(0)), found);
            case "locks" -> locks(bootstrap);
            case "transactions" -> transactions(bootstrap);
            case "admin" -> admin(bootstrap);
            case "killed" -> killed(bootstrap, found);
            case "member" -> member(bootstrap, rest.get(0), rest.get(1));
            case "work" -> work(bootstrap, rest, found);
            default -> throw new IllegalArgumentException("no part " + arguments.get(0));
        }
    }

    static KafkaShareConsumer<byte[], byte[]> consumer(String bootstrap, String group, Map<String, Object> options) {
        Map<String, Object> all = new HashMap<>(Map.of(
                "bootstrap.servers", bootstrap, "group.id", group,
                "key.deserializer", ByteArrayDeserializer.class, "value.deserializer", ByteArrayDeserializer.class));
        all.putAll(options);
        return new KafkaShareConsumer<>(all);
    }

    private static KafkaShareConsumer<byte[], byte[]> explicit(String bootstrap, String group, int maxRecords) {
        return consumer(bootstrap, group,
                Map.of("share.acknowledgement.mode", "explicit", "max.poll.records", maxRecords));
    }

    static void configure(String bootstrap, ConfigResource.Type type, String name, Map<String, String> options)
            throws Exception {
        Collection<AlterConfigOp> changes = new ArrayList<>();
        options.forEach((k, v) -> changes.add(new AlterConfigOp(new ConfigEntry(k, v), AlterConfigOp.OpType.SET)));
        try (Admin admin = Probe.admin(bootstrap)) {
            admin.incrementalAlterConfigs(Map.of(new ConfigResource(type, name), changes)).all().get();
        }
    }

    private static String group(String bootstrap, Map<String, String> options) throws Exception {
        String group = Probe.unique("java-share");
        Map<String, String> all = new HashMap<>(Map.of("share.auto.offset.reset", "earliest"));
        all.putAll(options);
        configure(bootstrap, ConfigResource.Type.GROUP, group, all);
        return group;
    }

    static void write(String bootstrap, String topic, int from, int to) {
        try (KafkaProducer<byte[], byte[]> producer = Probe.producer(bootstrap, Map.of("acks", "all", "batch.size", 400))) {
            for (int i = from; i < to; i++) {
                producer.send(new ProducerRecord<>(topic, 0, null, ByteBuffer.allocate(4).putInt(i).array()));
            }
        }
    }

    private static int number(ConsumerRecord<byte[], byte[]> record) {
        return ByteBuffer.wrap(record.value()).getInt();
    }

    /** Polls until there is something. */
    private static List<ConsumerRecord<byte[], byte[]>> next(KafkaShareConsumer<byte[], byte[]> consumer) throws Exception {
        List<ConsumerRecord<byte[], byte[]>> got = new ArrayList<>();
        Admins.await(() -> {
            consumer.poll(Duration.ofMillis(200)).forEach(got::add);
            return !got.isEmpty();
        }, "nothing was delivered");
        return got;
    }

    private static Map<TopicPartition, SharePartitionOffsetInfo> offsets(Admin admin, String group) throws Exception {
        return admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec())).partitionsToOffsetInfo(group).get();
    }

    /** Where the group begins is not looked at: Apache Kafka stores it later than what was settled. */
    private static void awaitLag(String bootstrap, String group, String topic, long lag) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Admin admin = Probe.admin(bootstrap)) {
            Admins.await(() -> {
                SharePartitionOffsetInfo info = offsets(admin, group).get(partition);
                return info != null && info.lag().orElse(-1L) == lag;
            }, "the group did not come to lag " + lag);
        }
    }

    /** Three members share one partition: each record goes to exactly one of them. */
    private static void together(String bootstrap, Map<String, Object> found) throws Exception {
        String topic = Probe.createTopic(bootstrap, "java-share", 1);
        String group = group(bootstrap, Map.of());
        int count = 6000;
        Map<Integer, Integer> times = new ConcurrentHashMap<>();
        Set<String> busy = ConcurrentHashMap.newKeySet();
        AtomicInteger failures = new AtomicInteger();
        List<Thread> threads = new ArrayList<>();
        write(bootstrap, topic, 0, count / 2);
        for (int m = 0; m < 3; m++) {
            Thread thread = new Thread(() -> {
                try (var consumer = consumer(bootstrap, group, Map.of("max.poll.records", 50))) {
                    consumer.subscribe(List.of(topic));
                    while (times.size() < count && failures.get() == 0) {
                        for (var record : consumer.poll(Duration.ofMillis(100))) {
                            times.merge(number(record), 1, Integer::sum);
                            busy.add(Thread.currentThread().getName());
                        }
                        consumer.commitSync();   // what a poll gave out is given back when the consumer closes
                    }
                } catch (RuntimeException failure) {
                    failure.printStackTrace();
                    failures.incrementAndGet();
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (int written = count / 2; written < count; written += 50) {
            write(bootstrap, topic, written, written + 50);
            if (busy.size() < 2) {
                Thread.sleep(200);   // on a busy machine the other members join late: leave something to them
            }
        }
        for (Thread thread : threads) {
            thread.join();
        }
        Probe.require(failures.get() == 0, "a member failed");
        times.values().removeIf(n -> n == 1);
        Probe.require(times.isEmpty(), "delivered more than once: %s", times);
        Probe.require(busy.size() > 1, "only one of three members got records");
        awaitLag(bootstrap, group, topic, 0);
        found.put("records", count);
        found.put("busy", busy.size());
    }

    /** Accept, release (again, with the count one up), reject (not again), and what is not acknowledged on close. */
    private static void acknowledge(String bootstrap) throws Exception {
        String topic = Probe.createTopic(bootstrap, "java-ack", 1);
        String group = group(bootstrap, Map.of());
        write(bootstrap, topic, 0, 10);
        Map<Integer, Integer> counts = new TreeMap<>();
        try (var consumer = explicit(bootstrap, group, 100)) {
            consumer.subscribe(List.of(topic));
            Set<Integer> seen = new TreeSet<>();
            while (seen.size() < 10) {
                for (var record : next(consumer)) {
                    int n = number(record);
                    seen.add(n);
                    Probe.require(record.deliveryCount().get() == 1, "first delivery counts %s", record.deliveryCount());
                    consumer.acknowledge(record, n % 3 == 0 ? AcknowledgeType.ACCEPT
                            : n % 3 == 1 ? AcknowledgeType.RELEASE : AcknowledgeType.REJECT);
                }
                Probe.require(consumer.commitSync().values().stream().allMatch(e -> e.isEmpty()), "refused");
            }
            awaitLag(bootstrap, group, topic, 3);
            while (counts.size() < 3) {
                for (var record : next(consumer)) {
                    counts.put(number(record), (int) record.deliveryCount().get());
                    consumer.acknowledge(record, number(record) == 7 ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
                }
                consumer.commitSync();
                if (counts.containsKey(7)) {
                    break;
                }
            }
        }
        Probe.require(counts.keySet().equals(Set.of(1, 4, 7)) && counts.values().stream().allMatch(n -> n == 2),
                "delivered again: %s", counts);
        try (var consumer = explicit(bootstrap, group, 100)) {
            consumer.subscribe(List.of(topic));
            var again = next(consumer).get(0);
            Probe.require(number(again) == 7 && again.deliveryCount().get() == 3, "third delivery: %s", again);
            consumer.acknowledge(again, AcknowledgeType.ACCEPT);
            consumer.commitSync();
        }
        awaitLag(bootstrap, group, topic, 0);
    }

    /** Rejected and released too often: such records are given up and written to the dead-letter topic. */
    private static void deadLetters(String bootstrap, boolean copy, Map<String, Object> found) throws Exception {
        String topic = Probe.createTopic(bootstrap, "java-dead", 1);
        String letters = Probe.unique("dlq.java");
        try (Admin admin = Probe.admin(bootstrap)) {
            NewTopic topicOfLetters = new NewTopic(letters, 1, (short) 1);
            admin.createTopics(List.of(topicOfLetters.configs(Map.of("errors.deadletterqueue.group.enable", "true"))))
                    .all().get();
        }
        String group = group(bootstrap, Map.of("share.delivery.count.limit", "2",
                "errors.deadletterqueue.topic.name", letters,
                "errors.deadletterqueue.copy.record.enable", String.valueOf(copy)));
        write(bootstrap, topic, 0, 3);
        try (var consumer = explicit(bootstrap, group, 100)) {
            consumer.subscribe(List.of(topic));
            for (int handled = 0; handled < 4; ) {   // 0 accepted, 1 rejected, 2 released twice
                for (var record : next(consumer)) {
                    handled++;
                    consumer.acknowledge(record, AcknowledgeType.values()[number(record) == 0
                            ? AcknowledgeType.ACCEPT.ordinal() : number(record) == 1
                            ? AcknowledgeType.REJECT.ordinal() : AcknowledgeType.RELEASE.ordinal()]);
                }
                consumer.commitSync();
            }
        }
        awaitLag(bootstrap, group, topic, 0);
        Map<String, Map<String, String>> headers = new TreeMap<>();
        try (KafkaConsumer<byte[], byte[]> reader = Probe.consumer(bootstrap, Map.of())) {
            reader.assign(List.of(new TopicPartition(letters, 0)));
            Admins.await(() -> {
                for (var letter : reader.poll(Duration.ofMillis(100))) {
                    Map<String, String> named = new TreeMap<>();
                    for (Header header : letter.headers()) {
                        named.put(header.key(), new String(header.value()));
                    }
                    headers.put(named.get("__dlq.errors.offset"), named);
                    Probe.require(copy ? number(letter) == Integer.parseInt(named.get("__dlq.errors.offset"))
                            : letter.value() == null, "the letter holds %s", letter);
                }
                return headers.size() == 2;
            }, "two dead letters are missing");
        }
        Probe.require(headers.get("1").get("__dlq.errors.delivery.count").equals("1")
                && headers.get("2").get("__dlq.errors.delivery.count").equals("2")
                && headers.get("1").get("__dlq.errors.topic").equals(topic)
                && headers.get("1").get("__dlq.errors.partition").equals("0")
                && headers.get("1").get("__dlq.errors.group").equals(group), "%s", headers);
        found.put("why", List.of(headers.get("1").get("__dlq.errors.message"), headers.get("2").get("__dlq.errors.message")));
    }

    /** A lock that runs out gives the record to another; one that is renewed does not. The broker locks for 4 s. */
    private static void locks(String bootstrap) throws Exception {
        String topic = Probe.createTopic(bootstrap, "java-locks", 1);
        String group = group(bootstrap, Map.of());
        write(bootstrap, topic, 0, 1);
        try (var slow = explicit(bootstrap, group, 1); var other = explicit(bootstrap, group, 1)) {
            slow.subscribe(List.of(topic));
            other.subscribe(List.of(topic));
            var held = next(slow).get(0);
            Probe.require(slow.acquisitionLockTimeoutMs().get() == 4000, "told %s", slow.acquisitionLockTimeoutMs());
            long until = System.nanoTime() + 6_000_000_000L;
            ConsumerRecord<byte[], byte[]> again = null;
            while (again == null && System.nanoTime() < until) {   // kept longer than a lock lasts
                long renewed = System.nanoTime();
                slow.acknowledge(held, AcknowledgeType.RENEW);
                slow.commitSync();
                slow.poll(Duration.ofMillis(10));
                for (var record : other.poll(Duration.ofMillis(200))) {
                    // Unless the machine stood still for as long as a lock lasts.
                    Probe.require(System.nanoTime() - renewed > 4_000_000_000L, "a renewed lock was broken");
                    again = record;
                }
            }
            if (again == null) {
                again = next(other).get(0);
            }
            // The slow one fetches in the background, and may be given its record once more in between.
            Probe.require(again.deliveryCount().get() >= 2, "after the lock ran out: %s", again);
            other.acknowledge(again, AcknowledgeType.ACCEPT);
            Probe.require(other.commitSync().values().stream().allMatch(e -> e.isEmpty()), "refused");
        }
        awaitLag(bootstrap, group, topic, 0);
    }

    /** A group that reads committed records never sees those of an aborted transaction; others do. */
    private static void transactions(String bootstrap) throws Exception {
        String topic = Probe.createTopic(bootstrap, "java-share-txn", 1);
        try (KafkaProducer<byte[], byte[]> producer =
                Probe.producer(bootstrap, Map.of("transactional.id", Probe.unique("share")))) {
            producer.initTransactions();
            for (int i = 0; i < 4; i++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, 0, null, ByteBuffer.allocate(4).putInt(i).array())).get();
                if (i % 2 == 0) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
        }
        for (String level : List.of("read_committed", "read_uncommitted")) {
            String group = group(bootstrap, Map.of("share.isolation.level", level));
            Set<Integer> seen = new TreeSet<>();
            Set<Integer> wanted = level.equals("read_committed") ? Set.of(0, 2) : Set.of(0, 1, 2, 3);
            try (var consumer = consumer(bootstrap, group, Map.of())) {
                consumer.subscribe(List.of(topic));
                Admins.await(() -> {
                    consumer.poll(Duration.ofMillis(200)).forEach(record -> seen.add(number(record)));
                    return seen.containsAll(wanted);
                }, level + " missed records");
                consumer.commitSync();
                consumer.poll(Duration.ofMillis(300));
            }
            Probe.require(seen.equals(wanted), "%s saw %s", level, seen);
            awaitLag(bootstrap, group, topic, 0);
        }
    }

    private static void admin(String bootstrap) throws Exception {
        String topic = Probe.createTopic(bootstrap, "java-share-admin", 2);
        String group = group(bootstrap, Map.of());
        TopicPartition first = new TopicPartition(topic, 0);
        write(bootstrap, topic, 0, 10);
        try (Admin admin = Probe.admin(bootstrap)) {
            try (var consumer = consumer(bootstrap, group, Map.of("client.id", "sharer"))) {
                consumer.subscribe(List.of(topic));
                Set<Integer> seen = new HashSet<>();
                Admins.await(() -> {
                    consumer.poll(Duration.ofMillis(200)).forEach(record -> seen.add(number(record)));
                    return seen.size() == 10;
                }, "not all was delivered");
                consumer.commitSync();
                ShareGroupDescription told = admin.describeShareGroups(List.of(group)).all().get().get(group);
                var members = new ArrayList<>(told.members());
                Probe.require(told.groupState() == GroupState.STABLE && members.size() == 1, "%s", told);
                Probe.require(members.get(0).clientId().equals("sharer")
                        && members.get(0).assignment().topicPartitions().contains(first), "%s", told);
                try {
                    admin.alterShareGroupOffsets(group, Map.of(first, 3L)).all().get();
                    throw new AssertionError("offsets were altered under a member's hands");
                } catch (java.util.concurrent.ExecutionException refused) {
                    Probe.require(refused.getCause() instanceof GroupNotEmptyException, "%s", refused);
                }
            }
            GroupListing listed = admin.listGroups(ListGroupsOptions.forShareGroups()).all().get().stream()
                    .filter(one -> one.groupId().equals(group)).findFirst().get();
            Probe.require(listed.type().get() == GroupType.SHARE && listed.groupState().get() == GroupState.EMPTY, "%s", listed);
            Probe.require(offsets(admin, group).get(first).lag().get() == 0, "%s", offsets(admin, group));
            admin.alterShareGroupOffsets(group, Map.of(first, 4L)).all().get();
            var moved = offsets(admin, group).get(first);
            Probe.require(moved.startOffset() == 4 && moved.lag().get() == 6, "%s", moved);
            try (var consumer = consumer(bootstrap, group, Map.of())) {
                consumer.subscribe(List.of(topic));
                Probe.require(number(next(consumer).get(0)) == 4, "the group does not begin at 4");
            }
            admin.deleteShareGroupOffsets(group, Set.of(topic)).all().get();
            Probe.require(offsets(admin, group).isEmpty(), "%s", offsets(admin, group));
            admin.deleteShareGroups(List.of(group)).all().get();
            Probe.require(admin.listGroups().all().get().stream().noneMatch(one -> one.groupId().equals(group)), "still listed");
        }
    }

    /** One of two members is killed while it holds records: the other gets them, and nothing that was accepted. */
    private static void killed(String bootstrap, Map<String, Object> found) throws Exception {
        String topic = Probe.createTopic(bootstrap, "java-killed", 1);
        String group = group(bootstrap, Map.of());
        write(bootstrap, topic, 0, 400);
        Set<Integer> accepted = new TreeSet<>();
        Process process = new ProcessBuilder(ProcessHandle.current().info().command().get(),
                "-cp", System.getProperty("java.class.path"), "-XX:TieredStopAtLevel=1",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "Probe", bootstrap, "share", "member", group, topic)
                .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        int held = 0;
        try (BufferedReader lines = process.inputReader()) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] words = line.split(" ");
                if (words[0].equals("accepted")) {
                    accepted.add(Integer.parseInt(words[1]));
                } else if (words[0].equals("holds")) {
                    held = Integer.parseInt(words[1]);
                    break;
                }
            }
            process.destroyForcibly().waitFor();
        }
        Set<Integer> rest = new TreeSet<>();
        try (var consumer = consumer(bootstrap, group, Map.of())) {
            consumer.subscribe(List.of(topic));
            Admins.await(() -> {
                consumer.poll(Duration.ofMillis(200)).forEach(record -> rest.add(number(record)));
                consumer.commitSync();
                return rest.size() + accepted.size() >= 400;
            }, "records are missing");
        }
        Probe.require(held > 0 && !accepted.isEmpty(), "%d held, %d accepted", held, accepted.size());
        Probe.require(rest.stream().noneMatch(accepted::contains), "accepted records were delivered again");
        awaitLag(bootstrap, group, topic, 0);
        found.put("accepted", accepted.size());
        found.put("held", held);
    }

    /** Accepts one poll's records, says so, takes another, says so, and waits to be killed. */
    private static void member(String bootstrap, String group, String topic) throws Exception {
        var consumer = explicit(bootstrap, group, 40);
        consumer.subscribe(List.of(topic));
        var first = next(consumer);
        first.forEach(record -> consumer.acknowledge(record, AcknowledgeType.ACCEPT));
        consumer.commitSync();
        first.forEach(record -> System.out.println("accepted " + number(record)));
        System.out.println("holds " + next(consumer).size());
        System.out.flush();
        Thread.sleep(60_000);
    }

    /**
     * Arguments: topic, group, how many in all. Accepts and counts until the group is through, over restarts of
     * brokers; reports how often each record that was surely accepted came again. Where a commit failed, the records may
     * be accepted or not: they come again unless they are, so the end is reached when nothing has come for a while.
     */
    private static void work(String bootstrap, List<String> arguments, Map<String, Object> found) throws Exception {
        String topic = arguments.get(0);
        String group = arguments.get(1);
        int count = Integer.parseInt(arguments.get(2));
        Set<Integer> accepted = new HashSet<>();
        Set<Integer> unsure = new HashSet<>();
        int again = 0;
        int refused = 0;
        int idle = 0;
        try (var consumer = explicit(bootstrap, group, 100)) {
            consumer.subscribe(List.of(topic));
            System.out.println("started");
            while (accepted.size() < count && (accepted.size() + unsure.size() < count || idle < IDLE_POLLS)) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(500));
                Map<Integer, Set<Integer>> batch = new HashMap<>();
                for (var record : records) {
                    if (accepted.contains(number(record))) {
                        again++;
                    }
                    batch.computeIfAbsent(record.partition(), p -> new HashSet<>()).add(number(record));
                    consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                }
                idle = batch.isEmpty() ? idle + 1 : 0;
                if (batch.isEmpty()) {
                    continue;
                }
                batch.values().forEach(unsure::addAll);
                try {
                    for (var stored : consumer.commitSync(Duration.ofSeconds(20)).entrySet()) {
                        if (stored.getValue().isEmpty()) {
                            accepted.addAll(batch.getOrDefault(stored.getKey().partition(), Set.of()));
                        } else {
                            refused++;
                        }
                    }
                } catch (KafkaException failed) {
                    refused++;
                }
                unsure.removeAll(accepted);
                System.out.println("done " + (accepted.size() + unsure.size()));
            }
        }
        found.put("accepted", accepted.size());
        found.put("unsure", unsure.size());
        found.put("again", again);
        found.put("refused", refused);
    }

    private static final int IDLE_POLLS = 20;
}
