import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.config.TopicBuilder;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.core.ProducerFactory;
import org.springframework.kafka.transaction.KafkaTransactionManager;
import org.springframework.messaging.handler.annotation.SendTo;

/** A listener that answers to another topic, in transactions; topics made by KafkaAdmin. */
@Configuration
@EnableKafka
public class Capitals {
    static String bootstrap;

    @Bean
    public KafkaAdmin admin() {
        return new KafkaAdmin(Map.of("bootstrap.servers", bootstrap));
    }

    @Bean
    public NewTopic made() {
        return TopicBuilder.name("spring-made").partitions(2).replicas(1).build();
    }

    @Bean
    public ProducerFactory<String, String> producers() {
        Map<String, Object> options = new HashMap<>();
        options.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        options.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, StringSerializer.class);
        options.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, StringSerializer.class);
        DefaultKafkaProducerFactory<String, String> factory = new DefaultKafkaProducerFactory<>(options);
        factory.setTransactionIdPrefix("spring-");
        return factory;
    }

    @Bean
    public KafkaTemplate<String, String> template(ProducerFactory<String, String> producers) {
        return new KafkaTemplate<>(producers);
    }

    @Bean
    public KafkaTransactionManager<String, String> transactions(ProducerFactory<String, String> producers) {
        return new KafkaTransactionManager<>(producers);
    }

    @Bean
    public ConcurrentKafkaListenerContainerFactory<String, String> kafkaListenerContainerFactory(
            KafkaTemplate<String, String> template, KafkaTransactionManager<String, String> transactions) {
        Map<String, Object> options = new HashMap<>();
        options.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        options.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        options.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class);
        options.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class);
        ConcurrentKafkaListenerContainerFactory<String, String> factory = new ConcurrentKafkaListenerContainerFactory<>();
        factory.setConsumerFactory(new DefaultKafkaConsumerFactory<>(options));
        factory.setReplyTemplate(template);
        factory.getContainerProperties().setKafkaAwareTransactionManager(transactions);
        return factory;
    }

    @KafkaListener(id = "spring", topics = "spring-in")
    @SendTo("spring-out")
    public String upper(String text) {
        return text.toUpperCase();
    }

    public static void main(String[] words) throws Exception {
        bootstrap = words[0];
        new AnnotationConfigApplicationContext(Capitals.class);
        Thread.currentThread().join();
    }
}
