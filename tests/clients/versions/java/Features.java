import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.FeatureMetadata;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;

/** The admin client of 2.7: features, single options, offsets by place, offsets of groups, quotas, elections. */
final class Features {
    private Features() {}

    static void run(String bootstrap, String prefix) throws Exception {
        String topic = prefix + "-features";
        try (AdminClient admin = AdminClient.create(Every.options(bootstrap))) {
            features(admin);
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
            GroupAdmin.write(bootstrap, topic, 5);
            options(admin, topic);
            offsets(admin, topic);
            quotas(admin, topic);
            admin.deleteTopics(List.of(topic)).all().get();
        }
    }

    private static void features(Admin admin) throws Exception {
        FeatureMetadata found = admin.describeFeatures().featureMetadata().get();
        for (Map.Entry<String, Integer> level : Map.of("group.version", 1, "transaction.version", 2).entrySet()) {
            var finalized = found.finalizedFeatures().get(level.getKey());
            Every.require(finalized != null && finalized.maxVersionLevel() == level.getValue(), "%s", found);
            Every.require(found.finalizedFeaturesEpoch().isPresent(), "%s", found);
        }
        // Features that can be switched off are named to clients that ask by version 4 of ApiVersions.
        boolean isListed = Every.isAtLeast(3, 9);
        Every.require(found.supportedFeatures().containsKey("group.version") == isListed, "%s", found);
    }

    private static void options(AdminClient admin, String topic) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        AlterConfigOp set = new AlterConfigOp(new ConfigEntry("retention.ms", "3600000"), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(set))).all().get();
        Every.require(Topics.option(admin, topic, "retention.ms").equals("3600000"), "retention.ms");
    }

    private static void offsets(Admin admin, String topic) throws Exception {
        TopicPartition first = new TopicPartition(topic, 0);
        String group = topic + "-group";
        Every.require(admin.listOffsets(Map.of(first, OffsetSpec.latest())).partitionResult(first).get().offset() == 5, "end");
        Every.require(
                admin.listOffsets(Map.of(first, OffsetSpec.forTimestamp(0))).partitionResult(first).get().offset() == 0, "time");
        admin.alterConsumerGroupOffsets(group, Map.of(first, new OffsetAndMetadata(2))).all().get();
        admin.deleteConsumerGroupOffsets(group, Set.of(first)).all().get();
        admin.electLeaders(ElectionType.PREFERRED, Set.of(first)).partitions().get();
        Every.require(admin.listPartitionReassignments(Set.of(first)).reassignments().get().isEmpty(), "reassignments");
        Every.require(admin.describeUserScramCredentials().users().get() != null, "users");
        admin.alterPartitionReassignments(Map.of(first, Optional.empty())).values().get(first).isDone();
    }

    private static void quotas(Admin admin, String client) throws Exception {
        ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, client));
        ClientQuotaAlteration.Op rate = new ClientQuotaAlteration.Op("producer_byte_rate", 1e6);
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(rate)))).all().get();
        ClientQuotaFilter filter = ClientQuotaFilter.contains(
                List.of(ClientQuotaFilterComponent.ofEntity(ClientQuotaEntity.CLIENT_ID, client)));
        Map<String, Double> found = admin.describeClientQuotas(filter).entities().get().get(entity);
        Every.require(Map.of("producer_byte_rate", 1e6).equals(found), "%s", found);
        ClientQuotaAlteration.Op none = new ClientQuotaAlteration.Op("producer_byte_rate", null);
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(none)))).all().get();
    }
}
