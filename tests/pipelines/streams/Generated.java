import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TopologyConfig;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindowedKStream;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.test.TestRecord;

/**
 * Kafka Streams' own answer to generated topologies (tests/support/generated_streams.py says how they are written).
 *
 * <p>Reads lines `S ...` (a step) and `I ...` (a record), then `END`; writes lines of topic, key, value and milliseconds, then
 * `END`.
 */
public final class Generated {
  private static final Serde<String> TEXT = Serdes.String();
  private static final Serde<Integer> NUMBER = Serdes.Integer();

  public static void main(String[] arguments) throws Exception {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    List<String[]> steps = new ArrayList<>();
    List<String[]> records = new ArrayList<>();
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] parts = line.split("\t");
      if (parts[0].equals("S")) {
        steps.add(parts);
      } else if (parts[0].equals("I")) {
        records.add(parts);
      } else {
        answer(steps, records);
        System.out.println("END");
        steps.clear();
        records.clear();
      }
    }
  }

  private static void answer(List<String[]> steps, List<String[]> records) {
    Properties settings = new Properties();
    settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "generated");
    settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "nowhere:9092");
    settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
    // Results of joins without a partner would otherwise wait for the clock.
    settings.put("__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", "0");
    settings.put(
        StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
    settings.put(
        StreamsConfig.STATE_DIR_CONFIG,
        System.getProperty("java.io.tmpdir") + "/generated-" + ProcessHandle.current().pid());
    StreamsBuilder builder = new StreamsBuilder(new TopologyConfig(new StreamsConfig(settings)));
    Generated made = new Generated(builder);
    for (String[] step : steps) {
      made.build(step);
    }
    try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(settings), settings)) {
      for (String[] record : records) {
        if (made.topics.contains(record[1])) {
          driver
              .createInputTopic(record[1], new StringSerializer(), new StringSerializer())
              .pipeInput(new TestRecord<>(text(record[2]), text(record[3]), null, Long.parseLong(record[4])));
        }
      }
      for (int number = 4; number < steps.size(); number++) {
        String topic = "out-" + number;
        if (!driver.producedTopicNames().contains(topic)) {
          continue;
        }
        for (TestRecord<String, String> record :
            driver.createOutputTopic(topic, new StringDeserializer(), new StringDeserializer()).readRecordsToList()) {
          System.out.println(
              String.join("\t", topic, plain(record.key()), plain(record.value()), record.timestamp().toString()));
        }
      }
    }
  }

  private static String text(String part) {
    return part.equals("-") ? null : part;
  }

  private static String plain(String part) {
    return part == null ? "-" : part;
  }

  private final StreamsBuilder builder;
  private final Map<String, KStream<String, String>> streams = new HashMap<>();
  private final Map<String, KTable<String, String>> tables = new HashMap<>();
  private final Set<String> topics = new TreeSet<>();

  private Generated(StreamsBuilder builder) {
    this.builder = builder;
  }

  private static int code(String text) {
    return text.chars().sum();
  }

  private static String brief(String text) {
    return text.length() <= 24 ? text : text.substring(text.length() - 24);
  }

  private static final ValueJoiner<String, String, String> PAIR =
      (one, other) -> brief("(" + plain(one) + " " + plain(other) + ")");

  private void build(String[] step) {
    String number = step[1];
    if (step[2].equals("stream")) {
      topics.add(step[3]);
      streams.put(number, builder.stream(step[3], Consumed.with(TEXT, TEXT)));
      return;
    }
    if (step[2].equals("table")) {
      topics.add(step[3]);
      tables.put(number, builder.table(step[3], Consumed.with(TEXT, TEXT)));
      return;
    }
    KStream<String, String> stream = streamOf(number, step);
    if (stream != null) {
      streams.put(number, stream);
    } else {
      KTable<String, String> table = tableOf(step);
      tables.put(number, table);
      stream = table.toStream();
    }
    stream.to("out-" + number, Produced.with(TEXT, TEXT));
  }

  private KStream<String, String> streamOf(String number, String[] step) {
    KStream<String, String> one = streams.get(step[3]);
    switch (step[2]) {
      case "filter":
        return one.filter((k, v) -> keeps(v, step));
      case "map_values":
        return one.mapValues(v -> v == null ? null : brief(v + step[4]));
      case "flat_map_values":
        return one.flatMapValues(v -> v != null && code(v) % 2 != 0 ? List.of(v, brief(v + "'")) : List.of());
      case "select_key":
        return one.selectKey((k, v) -> v == null ? k : "n" + code(v) % number(step[4]));
      case "merge":
        return one.merge(streams.get(step[4]));
      case "windows":
        return windows(one, step);
      case "limit":
        return tables
            .get(step[3])
            .suppress(Suppressed.untilTimeLimit(Duration.ofMillis(number(step[4])), BufferConfig.unbounded()))
            .toStream();
      case "stream_table":
        Joined<String, String, String> joined = Joined.with(TEXT, TEXT, TEXT);
        KTable<String, String> table = tables.get(step[4]);
        return step[5].equals("inner") ? one.join(table, PAIR, joined) : one.leftJoin(table, PAIR, joined);
      case "streams":
        return meet(one, streams.get(step[4]), step);
      case "count_calls":
        return calls(one, number, number(step[4]));
      default:
        return null;
    }
  }

  private static boolean keeps(String value, String[] step) {
    return value == null || code(value) % number(step[4]) != number(step[5]);
  }

  private static int number(String text) {
    return Integer.parseInt(text);
  }

  private static KStream<String, String> meet(KStream<String, String> one, KStream<String, String> other, String[] step) {
    JoinWindows within =
        JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(number(step[5])), Duration.ofMillis(number(step[6])));
    StreamJoined<String, String, String> serdes = StreamJoined.with(TEXT, TEXT, TEXT);
    switch (step[7]) {
      case "inner":
        return one.join(other, PAIR, within, serdes);
      case "left":
        return one.leftJoin(other, PAIR, within, serdes);
      default:
        return one.outerJoin(other, PAIR, within, serdes);
    }
  }

  private KTable<String, String> tableOf(String[] step) {
    KTable<String, String> one = tables.get(step[3]);
    switch (step[2]) {
      case "aggregate":
        return aggregated(streams.get(step[3]).groupByKey(Grouped.with(TEXT, TEXT)), step[4]);
      case "to_table":
        return streams.get(step[3]).toTable(Materialized.with(TEXT, TEXT));
      case "table_filter":
        return one.filter((k, v) -> keeps(v, step));
      case "table_map":
        return one.mapValues(v -> v == null ? null : brief(v + step[4]));
      case "table_group":
        KGroupedTable<String, String> groups =
            one.groupBy((k, v) -> KeyValue.pair("g" + code(v) % number(step[4]), v), Grouped.with(TEXT, TEXT));
        return step[5].equals("count")
            ? groups.count().mapValues(Generated::written)
            : groups
                .aggregate(() -> 0, (k, v, n) -> n + code(v), (k, v, n) -> n - code(v), Materialized.with(TEXT, NUMBER))
                .mapValues(Generated::written);
      case "tables":
        KTable<String, String> other = tables.get(step[4]);
        switch (step[5]) {
          case "inner":
            return one.join(other, PAIR);
          case "left":
            return one.leftJoin(other, PAIR);
          default:
            return one.outerJoin(other, PAIR);
        }
      case "foreign":
        java.util.function.Function<String, String> on = v -> code(v) % 4 == 0 ? null : "k" + code(v) % 3;
        Materialized<String, String, KeyValueStore<org.apache.kafka.common.utils.Bytes, byte[]>> kept =
            Materialized.with(TEXT, TEXT);
        return step[5].equals("inner")
            ? one.join(tables.get(step[4]), on, PAIR, kept)
            : one.leftJoin(tables.get(step[4]), on, PAIR, kept);
      default:
        throw new IllegalArgumentException(step[2]);
    }
  }

  private static String written(Object value) {
    return value == null ? null : value.toString();
  }

  private static KTable<String, String> aggregated(KGroupedStream<String, String> group, String how) {
    switch (how) {
      case "count":
        return group.count().mapValues(Generated::written);
      case "reduce":
        return group.reduce((one, other) -> brief(plain(one) + "+" + plain(other)));
      default:
        return group.aggregate(() -> "", (k, v, all) -> brief(all + "," + plain(v)), Materialized.with(TEXT, TEXT));
    }
  }

  private static KStream<String, String> windows(KStream<String, String> stream, String[] step) {
    KGroupedStream<String, String> group = stream.groupByKey(Grouped.with(TEXT, TEXT));
    Duration size = Duration.ofMillis(number(step[6]));
    Duration grace = Duration.ofMillis(number(step[8]));
    boolean last = step[9].equals("final");
    if (step[5].equals("session")) {
      SessionWindowedKStream<String, String> sessions =
          group.windowedBy(SessionWindows.ofInactivityGapAndGrace(size, grace));
      switch (step[4]) {
        case "count":
          return told(sessions.count(), last);
        case "reduce":
          return told(sessions.reduce((one, other) -> brief(plain(one) + "+" + plain(other))), last);
        default:
          return told(
              sessions.aggregate(
                  () -> "",
                  (k, v, all) -> brief(all + "," + plain(v)),
                  (k, one, other) -> brief(one + "&" + other),
                  Materialized.with(TEXT, TEXT)),
              last);
      }
    }
    TimeWindows windows = TimeWindows.ofSizeAndGrace(size, grace);
    if (step[5].equals("hopping")) {
      windows = windows.advanceBy(Duration.ofMillis(number(step[7])));
    }
    TimeWindowedKStream<String, String> timed =
        step[5].equals("sliding")
            ? group.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(size, grace))
            : group.windowedBy(windows);
    switch (step[4]) {
      case "count":
        return told(timed.count(), last);
      case "reduce":
        return told(timed.reduce((one, other) -> brief(plain(one) + "+" + plain(other))), last);
      default:
        return told(
            timed.aggregate(() -> "", (k, v, all) -> brief(all + "," + plain(v)), Materialized.with(TEXT, TEXT)), last);
    }
  }

  private static <V> KStream<String, String> told(KTable<Windowed<String>, V> table, boolean last) {
    KTable<Windowed<String>, V> found =
        last ? table.suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded())) : table;
    return found
        .toStream((k, v) -> k.key() + "@" + k.window().start() + "/" + k.window().end())
        .mapValues(Generated::written);
  }

  private KStream<String, String> calls(KStream<String, String> stream, String number, int every) {
    String store = "calls-" + number;
    builder.addStateStore(Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore(store), TEXT, NUMBER));
    return stream.process(() -> new Calls(store, every), store);
  }

  private static final class Calls implements Processor<String, String, String, String> {
    private final String store;
    private final int every;
    private KeyValueStore<String, Integer> kept;
    private ProcessorContext<String, String> context;

    private Calls(String store, int every) {
      this.store = store;
      this.every = every;
    }

    @Override
    public void init(ProcessorContext<String, String> given) {
      context = given;
      kept = given.getStateStore(store);
      given.schedule(Duration.ofMillis(every), PunctuationType.STREAM_TIME, this::tell);
    }

    @Override
    public void process(Record<String, String> record) {
      if (record.key() != null) {
        Integer before = kept.get(record.key());
        kept.put(record.key(), before == null ? 1 : before + 1);
      }
    }

    private void tell(long at) {
      Map<String, Integer> sorted = new TreeMap<>();
      kept.all().forEachRemaining(pair -> sorted.put(pair.key, pair.value));
      sorted.forEach((key, count) -> context.forward(new Record<>(key, count.toString(), at)));
    }
  }
}
