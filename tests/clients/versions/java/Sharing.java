import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigResource;

/** Share groups, in the protocol since 4.1: two members read each record once. */
final class Sharing {
    private static final int COUNT = 20;

    private Sharing() {}

    static void run(String bootstrap, String prefix) throws Exception {
        String topic = prefix + "-shared";
        try (Admin admin = Admin.create(Every.options(bootstrap));
                KafkaShareConsumer<String, String> one = new KafkaShareConsumer<>(options(bootstrap, topic));
                KafkaShareConsumer<String, String> two = new KafkaShareConsumer<>(options(bootstrap, topic))) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, topic);
            ConfigEntry earliest = new ConfigEntry("share.auto.offset.reset", "earliest");
            admin.incrementalAlterConfigs(Map.of(group, List.of(new AlterConfigOp(earliest, AlterConfigOp.OpType.SET))))
                    .all().get();
            GroupAdmin.write(bootstrap, topic, COUNT);
            Set<String> seen = new HashSet<>();
            long deadline = System.nanoTime() + Every.PATIENCE_NS;
            one.subscribe(List.of(topic));
            two.subscribe(List.of(topic));
            while (seen.size() < COUNT && System.nanoTime() < deadline) {
                for (KafkaShareConsumer<String, String> member : List.of(one, two)) {
                    member.poll(Duration.ofMillis(100)).forEach(record ->
                            Every.require(seen.add(record.value()), "%s came twice", record.value()));
                    member.commitSync();
                }
            }
            Every.require(seen.size() == COUNT, "%d of %d records", seen.size(), COUNT);
        }
    }

    private static java.util.Properties options(String bootstrap, String group) {
        return Every.options(bootstrap, "group.id", group);
    }
}
