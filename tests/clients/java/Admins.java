import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** The admin client: topics, configs, partitions, groups and offsets. */
final class Admins {
    private Admins() {}

    static void run(String bootstrap, List<String> arguments, Map<String, Object> found) throws Exception {
        try (Admin admin = Probe.admin(bootstrap)) {
            cluster(admin);
            topics(admin);
            configs(admin);
            partitions(admin);
            groups(admin, bootstrap);
        }
        found.put("parts", List.of("cluster", "topics", "configs", "partitions", "groups"));
    }

    private static void cluster(Admin admin) throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        Probe.require(!cluster.clusterId().get().isEmpty(), "no cluster id");
        Probe.require(cluster.nodes().get().size() >= 1 && cluster.controller().get() != null, "no nodes");
    }

    private static void topics(Admin admin) throws Exception {
        String name = Probe.unique("java-admin");
        var created = admin.createTopics(List.of(
                new NewTopic(name, 3, (short) 1).configs(Map.of("cleanup.policy", "compact", "segment.bytes", "2000000"))));
        created.all().get();
        Probe.require(created.numPartitions(name).get() == 3, "created with %d", created.numPartitions(name).get());
        String policy = created.config(name).get().get("cleanup.policy").value();
        Probe.require(policy.equals("compact"), "created with cleanup.policy=%s", policy);
        await(() -> admin.listTopics().names().get().contains(name), "the topic is not listed");
        TopicDescription description = admin.describeTopics(List.of(name)).allTopicNames().get().get(name);
        Probe.require(description.partitions().size() == 3, "described as %s", description);
        Probe.require(description.partitions().get(0).leader() != null, "no leader: %s", description);
        Probe.require(description.topicId().equals(created.topicId(name).get()), "another topic id");
        refused(TopicExistsException.class, () -> admin.createTopics(List.of(new NewTopic(name, 1, (short) 1))).all().get());
        refused(InvalidTopicException.class, () -> admin.createTopics(List.of(new NewTopic("a/b", 1, (short) 1))).all().get());
        refused(InvalidPartitionsException.class,
                () -> admin.createTopics(List.of(new NewTopic(Probe.unique("x"), 0, (short) 1))).all().get());
        refused(InvalidReplicationFactorException.class,
                () -> admin.createTopics(List.of(new NewTopic(Probe.unique("x"), 1, (short) 99))).all().get());
        refused(InvalidConfigurationException.class, () -> admin.createTopics(List.of(
                new NewTopic(Probe.unique("x"), 1, (short) 1).configs(Map.of("retention.ms", "soon")))).all().get());
        admin.deleteTopics(List.of(name)).all().get();
        await(() -> !admin.listTopics().names().get().contains(name), "the topic is still listed");
        refused(UnknownTopicOrPartitionException.class, () -> admin.deleteTopics(List.of(name)).all().get());
        refused(UnknownTopicOrPartitionException.class,
                () -> admin.describeTopics(List.of(name)).allTopicNames().get());
    }

    private static void configs(Admin admin) throws Exception {
        String name = Probe.unique("java-configs");
        admin.createTopics(List.of(new NewTopic(name, 1, (short) 1))).all().get();
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, name);
        ConfigEntry before = config(admin, topic).get("retention.ms");
        Probe.require(before.isDefault() && before.value().equals("604800000"), "default retention.ms: %s", before);
        alter(admin, topic, AlterConfigOp.OpType.SET, "retention.ms", "5000");
        alter(admin, topic, AlterConfigOp.OpType.APPEND, "cleanup.policy", "compact");
        await(() -> config(admin, topic).get("retention.ms").value().equals("5000"), "retention.ms was not set");
        ConfigEntry after = config(admin, topic).get("retention.ms");
        Probe.require(after.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, "its source: %s", after.source());
        String policy = config(admin, topic).get("cleanup.policy").value();
        Probe.require(policy.equals("delete,compact"), "appended: %s", policy);
        alter(admin, topic, AlterConfigOp.OpType.DELETE, "retention.ms", null);
        await(() -> config(admin, topic).get("retention.ms").isDefault(), "retention.ms was not reset");
        refused(InvalidConfigurationException.class,
                () -> alter(admin, topic, AlterConfigOp.OpType.SET, "retention.ms", "soon"));
        int node = admin.describeCluster().nodes().get().iterator().next().id();
        Config broker = config(admin, new ConfigResource(ConfigResource.Type.BROKER, String.valueOf(node)));
        Probe.require(broker.get("log.retention.hours") != null, "no log.retention.hours among the broker's configs");
        Probe.require(broker.entries().size() > 50, "only %d broker configs", broker.entries().size());
        admin.deleteTopics(List.of(name)).all().get();
    }

    private static Config config(Admin admin, ConfigResource resource) throws Exception {
        return admin.describeConfigs(List.of(resource)).all().get().get(resource);
    }

    private static void alter(Admin admin, ConfigResource resource, AlterConfigOp.OpType type, String name, String value)
            throws Exception {
        Collection<AlterConfigOp> ops = List.of(new AlterConfigOp(new ConfigEntry(name, value), type));
        admin.incrementalAlterConfigs(Map.of(resource, ops)).all().get();
    }

    private static void partitions(Admin admin) throws Exception {
        String name = Probe.unique("java-partitions");
        admin.createTopics(List.of(new NewTopic(name, 1, (short) 1))).all().get();
        admin.createPartitions(Map.of(name, NewPartitions.increaseTo(4))).all().get();
        await(() -> admin.describeTopics(List.of(name)).allTopicNames().get().get(name).partitions().size() == 4,
                "the topic did not grow to 4 partitions");
        refused(InvalidPartitionsException.class,
                () -> admin.createPartitions(Map.of(name, NewPartitions.increaseTo(2))).all().get());
        admin.deleteTopics(List.of(name)).all().get();
    }

    private static void groups(Admin admin, String bootstrap) throws Exception {
        String name = Probe.createTopic(bootstrap, "java-groups", 2);
        String group = Probe.unique("java-group");
        TopicPartition partition = new TopicPartition(name, 0);
        RoundTrip.produce(bootstrap, Probe.createTopic(bootstrap, "java-other", 4), 10, Map.of());
        try (var consumer = Probe.consumer(bootstrap, Map.of("group.id", group, "client.id", "java-probe"))) {
            consumer.subscribe(List.of(name));
            await(() -> {
                consumer.poll(java.time.Duration.ofMillis(100));
                return consumer.assignment().size() == 2;
            }, "no assignment");
            consumer.commitSync(Map.of(partition, new OffsetAndMetadata(0)));
            ConsumerGroupDescription live = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            Probe.require(live.groupState() == GroupState.STABLE && live.members().size() == 1, "described as %s", live);
            var member = live.members().iterator().next();
            Probe.require(member.clientId().equals("java-probe"), "its member: %s", member);
            Probe.require(member.assignment().topicPartitions().size() == 2, "its assignment: %s", member.assignment());
            Probe.require(ids(admin).contains(group), "the group is not listed");
        }
        await(() -> admin.describeConsumerGroups(List.of(group)).all().get().get(group).groupState() == GroupState.EMPTY,
                "the group did not become empty");
        var offsets = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        Probe.require(offsets.keySet().equals(Set.of(partition)), "committed: %s", offsets);
        admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(0, "again"))).all().get();
        admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all().get();
        admin.deleteConsumerGroups(List.of(group)).all().get();
        await(() -> !ids(admin).contains(group), "the group is still listed");
        refused(GroupIdNotFoundException.class, () -> admin.deleteConsumerGroups(List.of(group)).all().get());
        ListOffsetsResultInfo end = admin.listOffsets(Map.of(partition, OffsetSpec.latest())).partitionResult(partition).get();
        Probe.require(end.offset() == 0, "end offset %d of an empty partition", end.offset());
        admin.deleteTopics(List.of(name)).all().get();
    }

    private static Set<String> ids(Admin admin) throws Exception {
        return admin.listGroups(new ListGroupsOptions()).all().get().stream()
                .map(listing -> listing.groupId()).collect(Collectors.toSet());
    }

    interface Call {
        void run() throws Exception;
    }

    interface Check {
        boolean holds() throws Exception;
    }

    static void refused(Class<? extends Exception> with, Call call) throws Exception {
        try {
            call.run();
        } catch (ExecutionException failure) {
            Throwable cause = failure.getCause();
            Probe.require(with.isInstance(cause), "expected %s, got %s", with.getSimpleName(), cause);
            return;
        }
        throw new AssertionError("expected " + with.getSimpleName() + ", but it succeeded");
    }

    static void await(Check check, String otherwise) throws Exception {
        long deadline = System.nanoTime() + 20_000_000_000L;
        while (!check.holds()) {
            Probe.require(System.nanoTime() < deadline, otherwise);
            Thread.sleep(20);
        }
    }
}
