import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TopologyConfig;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;

/**
 * Kafka Streams' own answer to histories of records: joins of all kinds, aggregates of tables, windows of a stream.
 *
 * <p>Reads lines of topic, key, value and milliseconds, separated by tabs, then an empty line for the end of each history. A
 * value has parts separated by blanks; `-` is null. Writes lines of topic, key and value: of tables, what is left in the
 * end; of streams, every record.
 */
public final class Witness {
  private static final Serde<String> TEXT = Serdes.String();
  private static final List<String> STREAMS = List.of("met-inner", "met-left");
  private static final List<String> TABLES =
      List.of("inner", "left", "full", "foreign-inner", "foreign-left", "totals", "of-totals", "many", "tumbling", "hopping");

  public static void main(String[] arguments) throws Exception {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    List<String[]> history = new ArrayList<>();
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      if (!line.isEmpty()) {
        history.add(line.split("\t"));
        continue;
      }
      answer(history);
      history.clear();
      System.out.println();
    }
  }

  private static void answer(List<String[]> history) {
    Properties settings = new Properties();
    settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "witness");
    settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "nowhere:9092");
    settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    settings.put(
        StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
    settings.put(
        StreamsConfig.STATE_DIR_CONFIG,
        System.getProperty("java.io.tmpdir") + "/witness-" + ProcessHandle.current().pid());
    StreamsBuilder builder = new StreamsBuilder(new TopologyConfig(new StreamsConfig(settings)));
    build(builder);
    try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(settings), settings)) {
      for (String[] record : history) {
        TestInputTopic<String, String> topic =
            driver.createInputTopic(record[0], new StringSerializer(), new StringSerializer());
        topic.pipeInput(text(record[1]), text(record[2]), Long.parseLong(record[3]));
      }
      for (String name : TABLES) {
        TreeMap<String, String> left = new TreeMap<>();
        for (KeyValue<String, String> one : read(driver, name)) {
          if (one.value == null) left.remove(one.key);
          else left.put(one.key, one.value);
        }
        left.forEach((key, value) -> System.out.println(name + "\t" + key + "\t" + value));
      }
      for (String name : STREAMS) {
        read(driver, name).forEach(one -> System.out.println(name + "\t" + one.key + "\t" + one.value));
      }
    }
  }

  private static List<KeyValue<String, String>> read(TopologyTestDriver driver, String topic) {
    return driver.createOutputTopic(topic, new StringDeserializer(), new StringDeserializer()).readKeyValuesToList();
  }

  private static void build(StreamsBuilder builder) {
    // A table is materialised: its values would else be forwarded without the old ones.
    KTable<String, String> people = builder.table("people", Materialized.as("people"));
    KTable<String, String> homes = builder.table("homes", Materialized.as("homes"));
    KTable<String, String> orders = builder.table("orders", Materialized.as("orders"));
    KStream<String, String> visits = builder.stream("visits", Consumed.with(TEXT, TEXT));

    people.join(homes, Witness::pair).toStream().to("inner");
    people.leftJoin(homes, Witness::pair).toStream().to("left");
    people.outerJoin(homes, Witness::pair).toStream().to("full");
    orders.join(people, order -> part(order, 0), Witness::pair).toStream().to("foreign-inner");
    orders.leftJoin(people, order -> part(order, 0), Witness::pair).toStream().to("foreign-left");

    visits.join(people, Witness::pair, Joined.with(TEXT, TEXT, TEXT)).to("met-inner");
    visits.leftJoin(people, Witness::pair, Joined.with(TEXT, TEXT, TEXT)).to("met-left");

    KTable<String, String> totals =
        orders
            .groupBy((key, order) -> KeyValue.pair(part(order, 0), part(order, 1)), Grouped.with(TEXT, TEXT))
            .aggregate(() -> "0 0", (key, amount, sum) -> sum(sum, amount, 1), (key, amount, sum) -> sum(sum, amount, -1));
    KTable<String, String> there = totals.filter((key, sum) -> !part(sum, 0).equals("0"), Materialized.as("there"));
    there.toStream().to("totals");
    there.filter((key, sum) -> Integer.parseInt(part(sum, 0)) > 1).toStream().to("many");
    there
        .groupBy((key, sum) -> KeyValue.pair(part(sum, 0), part(sum, 1)), Grouped.with(TEXT, TEXT))
        .aggregate(() -> "0 0", (key, amount, sum) -> sum(sum, amount, 1), (key, amount, sum) -> sum(sum, amount, -1))
        .filter((key, sum) -> !part(sum, 0).equals("0"))
        .toStream()
        .to("of-totals");

    Duration hour = Duration.ofHours(1), ever = Duration.ofDays(10_000);
    TimeWindows tumbling = TimeWindows.ofSizeAndGrace(hour, ever);
    windowed(visits, tumbling, "tumbling");
    windowed(visits, tumbling.advanceBy(Duration.ofMinutes(20)), "hopping");
  }

  private static void windowed(KStream<String, String> visits, TimeWindows windows, String name) {
    visits
        .groupByKey(Grouped.with(TEXT, TEXT))
        .windowedBy(windows)
        .count()
        .toStream()
        .map((key, count) -> KeyValue.pair(key.key() + " " + key.window().start(), String.valueOf(count)))
        .to(name, Produced.with(TEXT, TEXT));
  }

  private static String pair(String left, String right) {
    return (left == null ? "-" : left) + " " + (right == null ? "-" : right);
  }

  private static String sum(String sum, String amount, int sign) {
    long count = Long.parseLong(part(sum, 0)) + sign;
    return count + " " + (Long.parseLong(part(sum, 1)) + sign * Long.parseLong(amount));
  }

  private static String part(String value, int place) {
    return text(value.split(" ")[place]);
  }

  private static String text(String value) {
    return value.equals("-") ? null : value;
  }
}
