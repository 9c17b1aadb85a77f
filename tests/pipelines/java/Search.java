import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.plugins.Plugin;
import org.opensearch.transport.Netty4Plugin;

/** One OpenSearch node without its start scripts: Search FOLDER PORT. */
public final class Search extends Node {
    private Search(Environment environment, List<Class<? extends Plugin>> plugins) {
        super(environment, plugins, false);
    }

    public static void main(String[] arguments) throws Exception {
        Settings settings = Settings.builder()
            .put("path.home", arguments[0])
            .put("http.port", arguments[1])
            .put("network.host", "127.0.0.1")
            .put("discovery.type", "single-node")
            .put("cluster.name", "tests")
            .put("node.name", "tests")
            .put("http.type", "netty4")
            .put("transport.type", "netty4")
            .put("cluster.routing.allocation.disk.threshold_enabled", false)
            .build();
        Environment environment = InternalSettingsPreparer.prepareEnvironment(
            settings, Map.of(), Path.of(arguments[0], "config"), () -> "tests");
        Node node = new Search(environment, List.of(Netty4Plugin.class)).start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                node.close();
            } catch (java.io.IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
        }));
        Thread.currentThread().join();
    }
}
