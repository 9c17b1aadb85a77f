import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.DescribeTopicsResult;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** The first admin client, 0.11: create, list, describe and delete topics; the cluster; options. */
final class Topics {
    private Topics() {}

    static void run(String bootstrap, String prefix) throws Exception {
        String topic = prefix + "-topic";
        try (AdminClient admin = AdminClient.create(Every.options(bootstrap))) {
            NewTopic wanted = new NewTopic(topic, 3, (short) 1).configs(Map.of("retention.ms", "7200000"));
            admin.createTopics(List.of(wanted)).all().get();
            refused(() -> admin.createTopics(List.of(wanted)).all().get(), TopicExistsException.class);
            Every.require(admin.listTopics().names().get().contains(topic), "%s is not listed", topic);
            TopicDescription described = describe(admin, topic);
            Every.require(described.partitions().size() == 3 && !described.isInternal(), "%s", described);
            int leader = described.partitions().get(0).leader().id();
            Every.require(admin.describeCluster().nodes().get().stream().anyMatch(node -> node.id() == leader), "leader");
            Every.require(admin.describeCluster().clusterId().get() != null, "no cluster id");
            Every.require(option(admin, topic, "retention.ms").equals("7200000"), "retention.ms");
            admin.deleteTopics(List.of(topic)).all().get();
            refused(() -> describe(admin, topic), UnknownTopicOrPartitionException.class);
        }
    }

    interface Act {
        void run() throws Exception;
    }

    static void refused(Act act, Class<?> reason) throws Exception {
        try {
            act.run();
        } catch (ExecutionException error) {
            Every.require(reason.isInstance(error.getCause()), "%s instead of %s", error.getCause(), reason);
            return;
        }
        throw new AssertionError("not refused: " + reason);
    }

    static String option(AdminClient admin, String topic, String name) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Map<ConfigResource, Config> found = admin.describeConfigs(Set.of(resource)).all().get();
        return found.get(resource).get(name).value();
    }

    /** all() before 3.1, which 4.0 has no longer. */
    @SuppressWarnings("unchecked")
    static TopicDescription describe(AdminClient admin, String topic) throws Exception {
        Collection<String> names = List.of(topic);
        DescribeTopicsResult result = admin.describeTopics(names);
        String method = Every.has(DescribeTopicsResult.class, "allTopicNames") ? "allTopicNames" : "all";
        Object all = Every.call(result, method, new Class<?>[0]);
        return ((KafkaFuture<Map<String, TopicDescription>>) all).get().get(topic);
    }
}
