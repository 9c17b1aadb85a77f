import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;

/**
 * One version of kafka-clients, 0.10.0 or newer: {@code java Every BOOTSTRAP PREFIX STEP ...}.
 *
 * <p>A step is a class with {@code run(String bootstrap, String prefix)} that is compiled against the first version
 * that has what it uses; all newer versions run the same class, as programs do whose jar is exchanged. Prints one line
 * of JSON. The topics PREFIX-records and PREFIX-group, two partitions each, must exist.
 */
public final class Every {
    static final int PARTITIONS = 2;
    static final long PATIENCE_NS = 60_000_000_000L;

    private Every() {}

    public static void main(String[] args) {
        List<String> done = new ArrayList<>();
        String error = "";
        try {
            for (String step : List.of(args).subList(2, args.length)) {
                Class.forName(step).getDeclaredMethod("run", String.class, String.class).invoke(null, args[0], args[1]);
                done.add('"' + step + '"');
            }
        } catch (Throwable failure) {
            Throwable cause = failure instanceof InvocationTargetException ? failure.getCause() : failure;
            cause.printStackTrace();
            error = args[2 + done.size()] + ": " + cause.toString().replaceAll("[\"\\\\\\p{Cntrl}]", " ");
        }
        boolean ok = error.isEmpty();
        System.out.printf("{\"ok\": %b, \"error\": \"%s\", \"done\": %s, \"version\": \"%s\"}%n", ok, error, done,
                version());
        System.out.flush();
        Runtime.getRuntime().halt(ok ? 0 : 1);
    }

    /** As the jar itself says. */
    static String version() {
        Properties found = new Properties();
        try (InputStream file = KafkaConsumer.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            found.load(file);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return found.getProperty("version");
    }

    static boolean isAtLeast(int major, int minor) {
        String[] parts = version().split("\\.");
        int mine = Integer.parseInt(parts[0]);
        return mine > major || (mine == major && Integer.parseInt(parts[1]) >= minor);
    }

    static void require(boolean holds, String otherwise, Object... values) {
        if (!holds) {
            throw new AssertionError(String.format(otherwise, values));
        }
    }

    /** Options: names and values in turn. */
    static Properties options(String bootstrap, Object... more) {
        Properties options = new Properties();
        options.put("bootstrap.servers", bootstrap);
        for (String side : List.of("key", "value")) {
            options.put(side + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
            options.put(side + ".deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        }
        for (int i = 0; i < more.length; i += 2) {
            options.put(more[i], more[i + 1]);
        }
        return options;
    }

    static KafkaProducer<String, String> producer(String bootstrap, Object... more) {
        return new KafkaProducer<>(options(bootstrap, more));
    }

    static KafkaConsumer<String, String> consumer(String bootstrap, Object... more) {
        Properties options = options(bootstrap, "auto.offset.reset", "earliest", "enable.auto.commit", "false");
        options.putAll(options(bootstrap, more));
        return new KafkaConsumer<>(options);
    }

    /** poll(Duration) since 2.0; poll(long), which 4.0 has no longer, before. */
    @SuppressWarnings("unchecked")
    static ConsumerRecords<String, String> poll(KafkaConsumer<String, String> consumer) throws Exception {
        Object found;
        if (has(KafkaConsumer.class, "poll", Duration.class)) {
            found = call(consumer, "poll", new Class<?>[] {Duration.class}, Duration.ofMillis(200));
        } else {
            found = call(consumer, "poll", new Class<?>[] {long.class}, 200L);
        }
        return (ConsumerRecords<String, String>) found;
    }

    static boolean has(Class<?> type, String method, Class<?>... parameters) {
        try {
            type.getMethod(method, parameters);
            return true;
        } catch (NoSuchMethodException missing) {
            return false;
        }
    }

    /** Calls a method that not every version has. */
    static Object call(Object target, String method, Class<?>[] parameters, Object... values) throws Exception {
        Method found = target.getClass().getMethod(method, parameters);
        found.setAccessible(true);
        try {
            return found.invoke(target, values);
        } catch (InvocationTargetException failure) {
            if (failure.getCause() instanceof Exception) {
                throw (Exception) failure.getCause();
            }
            throw failure;
        }
    }
}
