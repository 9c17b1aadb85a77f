import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.main.Main;

/** A route from topic to topic, with camel-main, as Camel's documentation of its component `kafka` has it. */
public final class Capitals {
    public static void main(String[] words) throws Exception {
        String brokers = "brokers=" + words[0];
        Main main = new Main();
        main.configure().addRoutesBuilder(new RouteBuilder() {
            @Override
            public void configure() {
                from("kafka:camel-in?" + brokers + "&groupId=camel&autoOffsetReset=earliest&autoCommitEnable=false&allowManualCommit=true")
                    .transform(body().convertToString())
                    .process(exchange -> exchange.getMessage().setBody(
                        exchange.getMessage().getBody(String.class).toUpperCase()))
                    .to("kafka:camel-out?" + brokers)
                    .process(exchange -> exchange.getMessage().getHeader(
                        org.apache.camel.component.kafka.KafkaConstants.MANUAL_COMMIT,
                        org.apache.camel.component.kafka.consumer.KafkaManualCommit.class).commit());
            }
        });
        main.run();
    }
}
