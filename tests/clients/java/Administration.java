import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigsOptions;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.DescribeConsumerGroupsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.FinalizedVersionRange;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidReplicaAssignmentException;
import org.apache.kafka.common.errors.InvalidRequestException;
import org.apache.kafka.common.errors.NoReassignmentInProgressException;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.SecurityDisabledException;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

/** What Admins leaves out of the admin client: options of every kind, quotas, features, records, elections, moves. */
final class Administration {
    private Administration() {}

    static void run(String bootstrap, List<String> arguments, Map<String, Object> found) throws Exception {
        try (Admin admin = Probe.admin(bootstrap)) {
            int node = admin.describeCluster().nodes().get().iterator().next().id();
            validateOnly(admin);
            sources(admin, node);
            everyKindOfOption(admin, node);
            quotas(admin);
            topicChanges(admin, bootstrap);
            features(admin);
            records(admin, bootstrap);
            leadersAndMoves(admin, node);
            operations(admin);
            accessRules(admin);
        }
    }

    private static void validateOnly(Admin admin) throws Exception {
        String name = Probe.unique("java-validated");
        var validated = admin.createTopics(List.of(new NewTopic(name, 3, (short) 1)), new CreateTopicsOptions().validateOnly(true));
        validated.all().get();
        Probe.require(validated.numPartitions(name).get() == 3, "validated with other partitions");
        Probe.require(!admin.listTopics().names().get().contains(name), "validating made the topic");
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "");
        admin.incrementalAlterConfigs(Map.of(broker, List.of(op("log.retention.ms", "1000"))),
                new AlterConfigsOptions().validateOnly(true)).all().get();
        Probe.require(described(admin, broker).get("log.retention.ms") == null, "validating set the option");
    }

    private static void sources(Admin admin, int node) throws Exception {
        String name = Probe.unique("java-sources");
        admin.createTopics(List.of(new NewTopic(name, 1, (short) 1))).all().get();
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, name);
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, String.valueOf(node));
        ConfigResource all = new ConfigResource(ConfigResource.Type.BROKER, "");
        List<ConfigEntry.ConfigSource> expected = List.of(
                ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigEntry.ConfigSource.DYNAMIC_BROKER_CONFIG,
                ConfigEntry.ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, ConfigEntry.ConfigSource.DEFAULT_CONFIG);
        set(admin, all, op("log.segment.bytes", "3000000"));
        set(admin, broker, op("log.segment.bytes", "4000000"));
        set(admin, topic, op("segment.bytes", "5000000"));
        // Apache Kafka's brokers hear of a change a moment later than the client that made it.
        Admins.await(() -> layers(admin, topic).equals(expected), "the layers of segment.bytes are others");
        ConfigEntry entry = described(admin, topic).get("segment.bytes");
        Probe.require(entry.value().equals("5000000"), "in effect: %s", entry);
        Probe.require(entry.type() == ConfigEntry.ConfigType.INT && !entry.documentation().isEmpty(), "%s", entry);
        set(admin, topic, unset("segment.bytes"));
        Admins.await(() -> layers(admin, topic).equals(expected.subList(1, 4)), "not the broker's value");
        set(admin, broker, unset("log.segment.bytes"));
        Admins.await(() -> layers(admin, topic).equals(expected.subList(2, 4)), "not the default's value");
        set(admin, all, unset("log.segment.bytes"));
        Admins.await(() -> described(admin, topic).get("segment.bytes").isDefault(), "not the default");
        ConfigEntry listeners = described(admin, broker).get("listeners");
        Probe.require(listeners.source() == ConfigEntry.ConfigSource.STATIC_BROKER_CONFIG, "listeners: %s", listeners);
        ConfigEntry node_id = described(admin, broker).get("node.id");
        Probe.require(node_id.isReadOnly(), "node.id may be changed");
        Admins.refused(InvalidRequestException.class, () -> set(admin, broker, op("node.id", "7")));
        admin.deleteTopics(List.of(name)).all().get();
    }

    private static List<ConfigEntry.ConfigSource> layers(Admin admin, ConfigResource topic) throws Exception {
        return described(admin, topic).get("segment.bytes").synonyms().stream()
                .map(ConfigEntry.ConfigSynonym::source).collect(Collectors.toList());
    }

    private static void everyKindOfOption(Admin admin, int node) throws Exception {
        String name = Probe.unique("java-kinds");
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, name);
        set(admin, group, op("consumer.session.timeout.ms", "50000"));
        awaitEntry(admin, group, "consumer.session.timeout.ms", "50000", ConfigEntry.ConfigSource.DYNAMIC_GROUP_CONFIG);
        Admins.refused(InvalidConfigurationException.class, () -> set(admin, group, op("consumer.session.timeout.ms", "1")));
        ConfigResource metrics = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, name);
        set(admin, metrics, op("metrics", "org.apache.kafka.nothing."), op("interval.ms", "60000"),
                op("match", "client_id=nobody-.*"));
        awaitEntry(admin, metrics, "interval.ms", "60000", ConfigEntry.ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG);
        Admins.refused(InvalidConfigurationException.class, () -> set(admin, metrics, op("match", "shoe_size=44")));
        ConfigResource loggers = new ConfigResource(ConfigResource.Type.BROKER_LOGGER, String.valueOf(node));
        ConfigEntry root = described(admin, loggers).get("root");
        set(admin, loggers, op("root", "ERROR"));
        awaitEntry(admin, loggers, "root", "ERROR", ConfigEntry.ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG);
        set(admin, loggers, op("root", root.value()));
        Admins.refused(InvalidConfigurationException.class, () -> set(admin, loggers, op("root", "LOUD")));
        Admins.refused(InvalidConfigurationException.class, () -> set(admin, loggers, op("no.such.logger", "INFO")));
        Set<ConfigResource> all = Set.of(group, metrics, loggers);
        Admins.await(() -> admin.listConfigResources().all().get().containsAll(all), "some are not listed");
        var only = admin.listConfigResources(Set.of(ConfigResource.Type.GROUP), new ListConfigResourcesOptions());
        Probe.require(only.all().get().stream().allMatch(one -> one.type() == ConfigResource.Type.GROUP), "not groups only");
        set(admin, group, unset("consumer.session.timeout.ms"));
        set(admin, metrics, unset("metrics"), unset("interval.ms"), unset("match"));
        Admins.await(() -> {
            Collection<ConfigResource> listed = admin.listConfigResources().all().get();
            return !listed.contains(group) && !listed.contains(metrics);
        }, "what has no options is still listed");
    }

    private static void awaitEntry(
            Admin admin, ConfigResource resource, String name, String value, ConfigEntry.ConfigSource source) throws Exception {
        Admins.await(() -> {
            ConfigEntry entry = described(admin, resource).get(name);
            return entry.value().equals(value) && entry.source() == source;
        }, name + " is not " + value + " from " + source);
    }

    private static void quotas(Admin admin) throws Exception {
        String user = Probe.unique("java-user");
        ClientQuotaEntity pair = new ClientQuotaEntity(Map.of("user", user, "client-id", "c"));
        ClientQuotaEntity alone = new ClientQuotaEntity(Map.of("user", user));
        admin.alterClientQuotas(List.of(
                new ClientQuotaAlteration(pair, List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1000.0))),
                new ClientQuotaAlteration(alone, List.of(
                        new ClientQuotaAlteration.Op("consumer_byte_rate", 2000.0),
                        new ClientQuotaAlteration.Op("request_percentage", 12.5))))).all().get();
        var filter = ClientQuotaFilter.contains(List.of(ClientQuotaFilterComponent.ofEntity("user", user)));
        Admins.await(() -> admin.describeClientQuotas(filter).entities().get().size() == 2, "not two");
        var both = admin.describeClientQuotas(filter).entities().get();
        Probe.require(both.keySet().equals(Set.of(pair, alone)), "described: %s", both);
        Probe.require(both.get(alone).equals(Map.of("consumer_byte_rate", 2000.0, "request_percentage", 12.5)), "%s", both);
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(alone, List.of(
                new ClientQuotaAlteration.Op("consumer_byte_rate", null),
                new ClientQuotaAlteration.Op("request_percentage", null))))).all().get();
        Admins.await(() -> admin.describeClientQuotas(filter).entities().get().keySet().equals(Set.of(pair)),
                "not the pair alone");
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(pair,
                List.of(new ClientQuotaAlteration.Op("producer_byte_rate", null))))).all().get();
        Admins.await(() -> admin.describeClientQuotas(filter).entities().get().isEmpty(), "still there");
        Admins.refused(InvalidRequestException.class, () -> admin.alterClientQuotas(List.of(new ClientQuotaAlteration(alone,
                List.of(new ClientQuotaAlteration.Op("shoe_size", 44.0))))).all().get());
    }

    /** Over its quota of topic changes the client is told so, and how long to wait. */
    private static void topicChanges(Admin admin, String bootstrap) throws Exception {
        String client = Probe.unique("java-maker");
        ClientQuotaEntity entity = new ClientQuotaEntity(Map.of("client-id", client));
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity,
                List.of(new ClientQuotaAlteration.Op("controller_mutation_rate", 0.01))))).all().get();
        var impatient = new CreateTopicsOptions().retryOnQuotaViolation(false);
        NewTopic first = new NewTopic(Probe.unique("java-made"), 1, (short) 1);
        NewTopic second = new NewTopic(Probe.unique("java-made"), 1, (short) 1);
        try (Admin maker = Admin.create(Map.of("bootstrap.servers", bootstrap, "client.id", client))) {
            var results = maker.createTopics(List.of(first, second), impatient).values();
            results.get(first.name()).get();
            try {
                results.get(second.name()).get();
                throw new AssertionError("expected ThrottlingQuotaExceededException");
            } catch (ExecutionException failure) {
                Probe.require(failure.getCause() instanceof ThrottlingQuotaExceededException, "got %s", failure.getCause());
                int waitMs = ((ThrottlingQuotaExceededException) failure.getCause()).throttleTimeMs();
                Probe.require(waitMs > 50_000 && waitMs <= 100_000, "told to wait for %d ms", waitMs);
            }
        }
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity,
                List.of(new ClientQuotaAlteration.Op("controller_mutation_rate", null))))).all().get();
        admin.deleteTopics(List.of(first.name())).all().get();
    }

    private static void features(Admin admin) throws Exception {
        var features = admin.describeFeatures().featureMetadata().get();
        FinalizedVersionRange groups = features.finalizedFeatures().get("group.version");
        Probe.require(groups != null && groups.maxVersionLevel() == 1, "finalized: %s", features.finalizedFeatures());
        Probe.require(features.supportedFeatures().containsKey("group.version"), "%s", features.supportedFeatures());
    }

    private static void records(Admin admin, String bootstrap) throws Exception {
        String name = Probe.createTopic(bootstrap, "java-deleted", 4);
        RoundTrip.produce(bootstrap, name, 400, Map.of("enable.idempotence", true));
        TopicPartition partition = new TopicPartition(name, 0);
        var states = admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers();
        Probe.require(states.size() == 1 && states.get(0).lastSequence() >= 0, "producers: %s", states);
        Probe.require(states.get(0).currentTransactionStartOffset().isEmpty(), "producers: %s", states);
        long end = admin.listOffsets(Map.of(partition, OffsetSpec.latest())).partitionResult(partition).get().offset();
        Probe.require(end > 10, "only %d records", end);
        var deleted = admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(10)));
        Probe.require(deleted.lowWatermarks().get(partition).get().lowWatermark() == 10, "not deleted up to 10");
        long start = admin.listOffsets(Map.of(partition, OffsetSpec.earliest())).partitionResult(partition).get().offset();
        Probe.require(start == 10, "begins at %d", start);
        Admins.refused(OffsetOutOfRangeException.class,
                () -> admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(end + 1))).all().get());
        admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(-1))).all().get();
        admin.deleteTopics(List.of(name)).all().get();
    }

    private static void leadersAndMoves(Admin admin, int node) throws Exception {
        String name = Probe.unique("java-moves");
        admin.createTopics(List.of(new NewTopic(name, 2, (short) 1))).all().get();
        TopicPartition partition = new TopicPartition(name, 0);
        TopicPartition absent = new TopicPartition(name, 9);
        var elected = admin.electLeaders(ElectionType.PREFERRED, Set.of(partition, absent)).partitions().get();
        Probe.require(elected.get(partition).get() instanceof ElectionNotNeededException, "elected: %s", elected);
        Probe.require(elected.get(absent).get() instanceof UnknownTopicOrPartitionException, "elected: %s", elected);
        Probe.require(admin.electLeaders(ElectionType.UNCLEAN, null).partitions().get().isEmpty(), "something was elected");
        Probe.require(admin.listPartitionReassignments().reassignments().get().isEmpty(), "something moves");
        Probe.require(admin.listPartitionReassignments(Set.of(partition)).reassignments().get().isEmpty(), "it moves");
        admin.alterPartitionReassignments(Map.of(partition, move(List.of(node)))).all().get();
        Admins.refused(NoReassignmentInProgressException.class,
                () -> admin.alterPartitionReassignments(Map.of(partition, Optional.empty())).all().get());
        Admins.refused(InvalidReplicaAssignmentException.class,
                () -> admin.alterPartitionReassignments(Map.of(partition, move(List.of(node, 99)))).all().get());
        Admins.refused(UnknownTopicOrPartitionException.class,
                () -> admin.alterPartitionReassignments(Map.of(absent, move(List.of(node)))).all().get());
        admin.deleteTopics(List.of(name)).all().get();
    }

    private static Optional<NewPartitionReassignment> move(List<Integer> replicas) {
        return Optional.of(new NewPartitionReassignment(replicas));
    }

    /** Where nobody checks, everybody may do everything, and is told so when asking. */
    private static void operations(Admin admin) throws Exception {
        String name = Probe.unique("java-operations");
        admin.createTopics(List.of(new NewTopic(name, 1, (short) 1))).all().get();
        TopicDescription asked = admin.describeTopics(List.of(name), new DescribeTopicsOptions().includeAuthorizedOperations(true))
                .allTopicNames().get().get(name);
        Probe.require(asked.authorizedOperations().containsAll(Set.of(AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE)),
                "of a topic: %s", asked);
        TopicDescription unasked = admin.describeTopics(List.of(name)).allTopicNames().get().get(name);
        Probe.require(unasked.authorizedOperations() == null || unasked.authorizedOperations().isEmpty()
                || unasked.authorizedOperations().equals(asked.authorizedOperations()), "not asked: %s", unasked);
        var cluster = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true)).authorizedOperations().get();
        Probe.require(cluster.contains(AclOperation.ALTER) && cluster.contains(AclOperation.IDEMPOTENT_WRITE), "%s", cluster);
        Probe.require(admin.describeCluster().authorizedOperations().get() == null, "not asked about the cluster");
        String group = Probe.unique("java-operations");
        TopicPartition partition = new TopicPartition(name, 0);
        admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(0))).all().get();
        var ofGroup = admin.describeConsumerGroups(List.of(group), new DescribeConsumerGroupsOptions().includeAuthorizedOperations(true))
                .all().get().get(group).authorizedOperations();
        Probe.require(ofGroup.containsAll(Set.of(AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DELETE)), "%s", ofGroup);
        admin.deleteConsumerGroups(List.of(group)).all().get();
        admin.deleteTopics(List.of(name)).all().get();
    }

    private static void accessRules(Admin admin) throws Exception {
        Admins.refused(SecurityDisabledException.class, () -> admin.describeAcls(AclBindingFilter.ANY).values().get());
        Admins.refused(SecurityDisabledException.class, () -> admin.deleteAcls(List.of(AclBindingFilter.ANY)).all().get());
        AclBinding rule = new AclBinding(
                new ResourcePattern(ResourceType.TOPIC, "t", PatternType.LITERAL),
                new AccessControlEntry("User:a", "*", AclOperation.READ, AclPermissionType.ALLOW));
        Admins.refused(SecurityDisabledException.class, () -> admin.createAcls(List.of(rule)).all().get());
    }

    private static AlterConfigOp op(String name, String value) {
        return new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
    }

    private static AlterConfigOp unset(String name) {
        return new AlterConfigOp(new ConfigEntry(name, null), AlterConfigOp.OpType.DELETE);
    }

    private static void set(Admin admin, ConfigResource resource, AlterConfigOp... ops) throws Exception {
        Collection<AlterConfigOp> all = List.of(ops);
        admin.incrementalAlterConfigs(Map.of(resource, all)).all().get();
    }

    private static Config described(Admin admin, ConfigResource resource) throws Exception {
        var options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        return admin.describeConfigs(List.of(resource), options).all().get().get(resource);
    }
}
