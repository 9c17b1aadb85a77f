import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

/**
 * kafka-clients 0.9 to 2.x: {@code java -Dversion=... OldClient BOOTSTRAP write|read|group TOPIC ARGUMENTS}.
 *
 * <p>write TOPIC COUNT CODECS, read TOPIC COUNT, group TOPIC COUNT. Uses only what all these releases have, and is
 * compiled against each. Prints one line of JSON.
 */
public final class OldClient {
    private static final long TIMEOUT_MS = 30_000;
    private static final String VERSION = System.getProperty("version");

    private OldClient() {}

    public static void main(String[] args) {
        String found;
        int code = 0;
        try {
            int count = Integer.parseInt(args[3]);
            switch (args[1]) {
                case "write":
                    found = write(args[0], args[2], count, args[4].split(","));
                    break;
                case "read":
                    found = read(args[0], args[2], count);
                    break;
                default:
                    found = group(args[0], args[2], count);
            }
        } catch (Throwable failure) {
            failure.printStackTrace();
            found = "\"ok\":false,\"error\":" + quoted(failure.toString());
            code = 1;
        }
        System.out.println("{" + found + "}");
        System.out.flush();
        Runtime.getRuntime().halt(code);
    }

    private static Properties options(String bootstrap) {
        Properties options = new Properties();
        options.put("bootstrap.servers", bootstrap);
        options.put("client.id", "java-" + VERSION);
        for (String side : new String[] {"key", "value"}) {
            options.put(side + ".serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
            options.put(side + ".deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        }
        return options;
    }

    private static String write(String bootstrap, String topic, int count, String[] codecs) throws Exception {
        List<String> written = new ArrayList<>();
        for (String codec : codecs) {
            Properties options = options(bootstrap);
            options.put("compression.type", codec);
            options.put("acks", "all");
            options.put("linger.ms", "50");
            String who = "java " + VERSION + " " + codec;
            try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(options)) {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (int i = 0; i < count; i++) {
                    byte[] key = i % 7 == 0 ? null : ("key-" + i).getBytes(StandardCharsets.UTF_8);
                    byte[] value =
                            i % 11 == 3 && key != null ? null : (who + "/" + i).getBytes(StandardCharsets.UTF_8);
                    sent.add(producer.send(new ProducerRecord<>(topic, 0, key, value)));
                    written.add("[" + quoted(who) + "," + text(key) + "," + text(value) + "]");
                }
                for (Future<RecordMetadata> one : sent) {
                    one.get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
                }
            }
        }
        return "\"ok\":true,\"written\":[" + String.join(",", written) + "]";
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, String group) {
        Properties options = options(bootstrap);
        options.put("group.id", group);
        options.put("auto.offset.reset", "earliest");
        options.put("enable.auto.commit", "false");
        return new KafkaConsumer<>(options);
    }

    private static List<String> poll(KafkaConsumer<byte[], byte[]> consumer, int count) throws Exception {
        List<String> rows = new ArrayList<>();
        long deadline = System.currentTimeMillis() + TIMEOUT_MS;
        while (rows.size() < count && System.currentTimeMillis() < deadline) {
            for (ConsumerRecord<byte[], byte[]> one : consumer.poll(200)) {
                rows.add("[" + one.offset() + "," + timestamp(one) + "," + text(one.key()) + "," + text(one.value())
                        + "]");
            }
        }
        return rows;
    }

    /** Records have timestamps since 0.10; magic 0 has none, which comes out as -1. */
    private static String timestamp(ConsumerRecord<byte[], byte[]> record) throws Exception {
        try {
            long time = (Long) ConsumerRecord.class.getMethod("timestamp").invoke(record);
            return String.valueOf(time);
        } catch (NoSuchMethodException before10) {
            return "null";
        }
    }

    private static String read(String bootstrap, String topic, int count) throws Exception {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, "reader-" + topic + "-" + VERSION)) {
            consumer.assign(Collections.singletonList(new TopicPartition(topic, 0)));
            List<String> rows = poll(consumer, count);
            return "\"ok\":true,\"found\":{\"" + VERSION + "\":[" + String.join(",", rows) + "]}";
        }
    }

    private static String group(String bootstrap, String topic, int count) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        List<String> positions = new ArrayList<>();
        int read = 0;
        for (int turn = 0; turn < 2; turn++) {
            try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, "group-" + topic + "-" + VERSION)) {
                consumer.subscribe(Collections.singletonList(topic));
                if (turn == 0) {
                    read = poll(consumer, count).size();
                    consumer.commitSync();
                } else {
                    long deadline = System.currentTimeMillis() + TIMEOUT_MS;
                    while (consumer.assignment().isEmpty() && System.currentTimeMillis() < deadline) {
                        consumer.poll(100);
                    }
                }
                positions.add("[" + consumer.committed(partition).offset() + "," + consumer.position(partition) + "]");
            }
        }
        return "\"ok\":true,\"positions\":{\"" + VERSION + "\":[" + String.join(",", positions) + "," + read + "]}";
    }

    private static String text(byte[] value) {
        return value == null ? "null" : quoted(new String(value, StandardCharsets.UTF_8));
    }

    private static String quoted(String value) {
        return "\"" + value.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", " ") + "\"";
    }
}
