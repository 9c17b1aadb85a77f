import java.util.Arrays;
import java.util.Properties;
import java.util.Scanner;
import java.util.TreeSet;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;

/**
 * Words NAME STATE-DIR OPTION=VALUE...: counts the words of NAME-lines into NAME-counts, and joins NAME-orders with the table
 * NAME-people into NAME-named. Prints each new state; `quit` on standard input stops it, `tasks` prints its tasks.
 */
public class Words {
  public static void main(String[] words) {
    String name = words[0];
    Properties options = new Properties();
    options.put("application.id", name);
    options.put("state.dir", words[1]);
    options.put("commit.interval.ms", "200");
    options.put("default.key.serde", Serdes.String().getClass().getName());
    options.put("default.value.serde", Serdes.String().getClass().getName());
    for (String word : Arrays.copyOfRange(words, 2, words.length)) {
      options.put(word.split("=", 2)[0], word.split("=", 2)[1]);
    }
    StreamsBuilder builder = new StreamsBuilder();
    KStream<String, String> lines = builder.stream(name + "-lines");
    lines.flatMapValues(line -> Arrays.asList(line.split(" "))).groupBy((key, word) -> word)
        .count(Materialized.as("words")).toStream().mapValues(String::valueOf).to(name + "-counts");
    KTable<String, String> people = builder.table(name + "-people", Materialized.as("people"));
    builder.<String, String>stream(name + "-orders").join(people, (order, person) -> person + ":" + order)
        .to(name + "-named");
    KafkaStreams streams = new KafkaStreams(builder.build(), options);
    streams.setStateListener((now, before) -> System.out.println("STATE " + now));
    streams.start();
    Scanner input = new Scanner(System.in);
    while (input.hasNextLine()) {
      String word = input.nextLine();
      if (word.equals("quit")) {
        break;
      }
      TreeSet<String> active = new TreeSet<>();
      TreeSet<String> standby = new TreeSet<>();
      streams.localThreadsMetadata().forEach(thread -> {
        thread.activeTasks().forEach(task -> active.add(String.valueOf(task.taskId())));
        thread.standbyTasks().forEach(task -> standby.add(String.valueOf(task.taskId())));
      });
      System.out.println("TASKS " + active + " " + standby);
    }
    streams.close();
  }
}
