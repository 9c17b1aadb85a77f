import java.time.Duration;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/** Where Java's client of MirrorMaker 2 says that a group goes on in the target: a line for each partition. */
public final class Translate {
    public static void main(String[] words) throws Exception {
        Map<String, Object> target = Map.of("bootstrap.servers", words[0]);
        if (words[1].equals("hops")) {
            System.out.println(words[2] + " " + RemoteClusterUtils.replicationHops(target, words[2]));
            System.out.println(RemoteClusterUtils.upstreamClusters(target));
            System.out.println(RemoteClusterUtils.heartbeatTopics(target));
            System.out.println(RemoteClusterUtils.checkpointTopics(target));
            return;
        }
        Map<TopicPartition, OffsetAndMetadata> found =
            RemoteClusterUtils.translateOffsets(target, words[1], words[2], Duration.ofSeconds(30));
        Map<String, Long> lines = new TreeMap<>();
        found.forEach((place, offset) -> lines.put(place.topic() + " " + place.partition(), offset.offset()));
        lines.forEach((place, offset) -> System.out.println(place + " " + offset));
    }
}
