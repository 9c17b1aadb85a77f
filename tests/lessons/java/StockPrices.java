import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.TreeSet;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Partitioner;
import org.apache.kafka.clients.producer.ProducerInterceptor;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Ten senders share one producer, which has a serializer, a partitioner and an interceptor of its own. */
public final class StockPrices {
    static final String TOPIC = "stock-prices";
    static final List<String> STOCKS = Arrays.asList("ABC", "GOOG", "IBM", "MSFT", "UBER", "XYZ");
    static final int SENDERS = 10;
    static final int EACH = 50;
    static final AtomicInteger sent = new AtomicInteger();
    static final AtomicInteger acknowledged = new AtomicInteger();

    static final class Price {
        final String stock;
        final int cents;

        Price(String stock, int cents) {
            this.stock = stock;
            this.cents = cents;
        }
    }

    public static final class PriceSerializer implements Serializer<Price> {
        @Override
        public void configure(Map<String, ?> options, boolean isKey) {}

        @Override
        public byte[] serialize(String topic, Price price) {
            return (price.stock + " " + price.cents).getBytes(StandardCharsets.UTF_8);
        }

        @Override
        public void close() {}
    }

    public static final class Lane implements Partitioner {
        private List<String> important = Collections.emptyList();

        @Override
        public void configure(Map<String, ?> options) {
            important = Arrays.asList(((String) options.get("important.stocks")).split(","));
        }

        @Override
        public int partition(String topic, Object key, byte[] keyBytes, Object value, byte[] bytes, Cluster cluster) {
            int count = cluster.partitionsForTopic(topic).size();
            return important.contains(key) ? count - 1 : Math.floorMod(key.hashCode(), count - 1);
        }

        @Override
        public void close() {}
    }

    public static final class Counter implements ProducerInterceptor<String, Price> {
        @Override
        public void configure(Map<String, ?> options) {}

        @Override
        public ProducerRecord<String, Price> onSend(ProducerRecord<String, Price> record) {
            sent.incrementAndGet();
            return record;
        }

        @Override
        public void onAcknowledgement(RecordMetadata metadata, Exception error) {
            if (error == null) {
                acknowledged.incrementAndGet();
            }
        }

        @Override
        public void close() {}
    }

    static Properties options(String bootstrap) {
        Properties options = new Properties();
        options.put("bootstrap.servers", bootstrap);
        return options;
    }

    public static void main(String[] words) throws Exception {
        Properties options = options(words[0]);
        options.put("key.serializer", StringSerializer.class.getName());
        options.put("value.serializer", PriceSerializer.class.getName());
        options.put("partitioner.class", Lane.class.getName());
        options.put("important.stocks", "IBM,UBER");
        options.put("interceptor.classes", Counter.class.getName());
        options.put("acks", "all");
        options.put("retries", "3");
        options.put("max.in.flight.requests.per.connection", "1");
        options.put("linger.ms", "100");
        options.put("batch.size", "65536");
        options.put("compression.type", "snappy");
        KafkaProducer<String, Price> producer = new KafkaProducer<>(options);
        ExecutorService senders = Executors.newFixedThreadPool(SENDERS);
        for (int sender = 0; sender < SENDERS; sender++) {
            Random chance = new Random(sender);
            senders.submit(() -> {
                for (int i = 0; i < EACH; i++) {
                    Price price = new Price(STOCKS.get(chance.nextInt(STOCKS.size())), chance.nextInt(50_000));
                    producer.send(new ProducerRecord<>(TOPIC, price.stock, price));
                }
            });
        }
        senders.shutdown();
        senders.awaitTermination(60, TimeUnit.SECONDS);
        producer.flush();
        int partitions = producer.partitionsFor(TOPIC).size();
        boolean measured = producer.metrics().keySet().stream().anyMatch(name -> name.name().equals("record-send-rate"));
        producer.close();
        System.out.println("sent " + sent + ", acknowledged " + acknowledged + ", measured " + measured);
        read(words[0], partitions);
    }

    static void read(String bootstrap, int partitions) {
        Properties options = options(bootstrap);
        options.put("key.deserializer", StringDeserializer.class.getName());
        options.put("value.deserializer", StringDeserializer.class.getName());
        options.put("auto.offset.reset", "earliest");
        options.put("enable.auto.commit", "false");
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(options);
        TreeSet<String> lane = new TreeSet<>();
        TreeSet<String> rest = new TreeSet<>();
        int count = 0;
        consumer.assign(allOf(partitions));
        consumer.seekToBeginning(allOf(partitions));
        while (count < SENDERS * EACH) {
            for (ConsumerRecord<String, String> record : consumer.poll(100)) {
                (record.partition() == partitions - 1 ? lane : rest).add(record.key());
                count++;
            }
        }
        consumer.close();
        System.out.println("read " + count + ", lane " + lane + ", rest " + rest);
    }

    static List<TopicPartition> allOf(int partitions) {
        TopicPartition[] all = new TopicPartition[partitions];
        Arrays.setAll(all, number -> new TopicPartition(TOPIC, number));
        return Arrays.asList(all);
    }
}
