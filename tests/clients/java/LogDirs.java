import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeReplicaLogDirsResult.ReplicaLogDirInfo;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.LogDirNotFoundException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** A partition that moves between two log dirs: seen on its way, called off, hurried on, arrived. */
final class LogDirs {
    private static final String RATE = "replica.alter.log.dirs.io.max.bytes.per.second";

    private LogDirs() {}

    /** Arguments: a topic with data on partition 0, of which a slow broker takes long to move. */
    static void move(String bootstrap, List<String> arguments, Map<String, Object> found) throws Exception {
        try (Admin admin = Probe.admin(bootstrap)) {
            int node = admin.describeCluster().nodes().get().iterator().next().id();
            TopicPartitionReplica replica = new TopicPartitionReplica(arguments.get(0), 0, node);
            String from = info(admin, replica).getCurrentReplicaLogDir();
            Map<String, LogDirDescription> dirs = admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node);
            String to = dirs.keySet().stream().filter(dir -> !dir.equals(from)).findFirst().orElseThrow();

            refused(LogDirNotFoundException.class, admin, replica, "/no/such/dir");
            refused(UnknownTopicOrPartitionException.class, admin, new TopicPartitionReplica("nobody", 0, node), to);

            alter(admin, replica, to);
            Admins.await(() -> to.equals(info(admin, replica).getFutureReplicaLogDir()), "no future replica is shown");
            Probe.require(info(admin, replica).getFutureReplicaOffsetLag() > 0, "the future replica has no lag");
            alter(admin, replica, from);
            Admins.await(() -> info(admin, replica).getFutureReplicaLogDir() == null, "the move was not called off");
            Probe.require(from.equals(info(admin, replica).getCurrentReplicaLogDir()), "it moved nevertheless");

            alter(admin, replica, to);
            Probe.require(to.equals(info(admin, replica).getFutureReplicaLogDir()), "no second move");
            ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, String.valueOf(node));
            admin.incrementalAlterConfigs(Map.of(broker,
                    List.of(new AlterConfigOp(new ConfigEntry(RATE, "1000000000"), AlterConfigOp.OpType.SET)))).all().get();
            Admins.await(() -> to.equals(info(admin, replica).getCurrentReplicaLogDir()), "it did not arrive");
            Probe.require(info(admin, replica).getFutureReplicaLogDir() == null, "it is still on its way");
            Probe.require(size(admin, node, to, replica) > 0, "it arrived empty");
            Probe.require(size(admin, node, from, replica) == -1, "it is still in its old dir");

            String wished = Probe.unique("wished");
            for (int index = 0; index < 3; index++) {
                TopicPartitionReplica absent = new TopicPartitionReplica(wished, index, node);
                refused(UnknownTopicOrPartitionException.class, admin, absent, from);
            }
            admin.createTopics(List.of(new NewTopic(wished, 3, (short) 1))).all().get();
            for (int index = 0; index < 3; index++) {
                String where = info(admin, new TopicPartitionReplica(wished, index, node)).getCurrentReplicaLogDir();
                Probe.require(from.equals(where), "%s-%d was made in %s", wished, index, where);
            }
            found.put("from", from);
            found.put("to", to);
        }
    }

    private static ReplicaLogDirInfo info(Admin admin, TopicPartitionReplica replica) throws Exception {
        return admin.describeReplicaLogDirs(List.of(replica)).all().get().get(replica);
    }

    /** Bytes of a partition in one dir, -1 when it is not there. */
    private static long size(Admin admin, int node, String dir, TopicPartitionReplica replica) throws Exception {
        LogDirDescription one = admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node).get(dir);
        Probe.require(one.totalBytes().orElse(-1) > 0 && one.usableBytes().orElse(-1) > 0, "no size of the disk");
        var found = one.replicaInfos().get(new TopicPartition(replica.topic(), replica.partition()));
        return found == null ? -1 : found.size();
    }

    private static void alter(Admin admin, TopicPartitionReplica replica, String dir) throws Exception {
        admin.alterReplicaLogDirs(Map.of(replica, dir)).all().get();
    }

    private static void refused(Class<? extends Exception> with, Admin admin, TopicPartitionReplica replica, String dir)
            throws Exception {
        try {
            alter(admin, replica, dir);
        } catch (ExecutionException failure) {
            Probe.require(with.isInstance(failure.getCause()), "expected %s, got %s", with, failure.getCause());
            return;
        }
        throw new AssertionError("expected " + with.getSimpleName() + ", but it succeeded");
    }
}
