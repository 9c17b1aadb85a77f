import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidRegularExpression;

/** Subscriptions by an expression that the broker matches (SubscriptionPattern, the consumer protocol). */
final class Patterns {
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    private Patterns() {}

    /** What exists comes first, a new topic later; another expression replaces the first; what is no expression is refused. */
    static void run(String bootstrap, List<String> arguments, Map<String, Object> found) throws Exception {
        String prefix = Probe.unique("java-pattern");
        String one = Probe.createTopic(bootstrap, prefix + "-a", 2);
        Probe.createTopic(bootstrap, "not-" + prefix, 1);
        Map<String, Object> options = Map.of("group.id", prefix, "group.protocol", "consumer");
        try (KafkaConsumer<byte[], byte[]> consumer = Probe.consumer(bootstrap, options)) {
            consumer.subscribe(new SubscriptionPattern(prefix + "-.*"));
            poll(consumer, () -> topics(consumer).equals(Set.of(one)), "the topic that matches");
            String two = Probe.createTopic(bootstrap, prefix + "-b", 1);
            poll(consumer, () -> topics(consumer).equals(Set.of(one, two)), "the topic that was made later");
            consumer.subscribe(new SubscriptionPattern(prefix + "-b.*"));
            poll(consumer, () -> topics(consumer).equals(Set.of(two)), "another expression");
            consumer.subscribe(new SubscriptionPattern("("));
            try {
                poll(consumer, () -> false, "an error");
                throw new AssertionError("the expression '(' was accepted");
            } catch (InvalidRegularExpression expected) {
                found.put("refused", "(");
            }
        }
        found.put("topics", 2);
    }

    private static Set<String> topics(KafkaConsumer<byte[], byte[]> consumer) {
        return consumer.assignment().stream().map(TopicPartition::topic).collect(Collectors.toSet());
    }

    private static void poll(KafkaConsumer<byte[], byte[]> consumer, BooleanSupplier condition, String awaited) {
        long deadlineNanos = System.nanoTime() + PATIENCE.toNanos();
        while (!condition.getAsBoolean()) {
            Probe.require(System.nanoTime() < deadlineNanos, "%s did not come; assigned: %s", awaited, consumer.assignment());
            consumer.poll(Duration.ofMillis(50));
        }
    }
}
