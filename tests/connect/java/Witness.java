import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileInputStream;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;

/** Debezium's embedded engine with a properties file; prints topic, key, value of each record, separated by tabs. */
public class Witness {
  public static void main(String[] arguments) throws Exception {
    Properties properties = new Properties();
    try (FileInputStream file = new FileInputStream(arguments[0])) {
      properties.load(file);
    }
    CountDownLatch done = new CountDownLatch(1);
    DebeziumEngine<ChangeEvent<String, String>> engine =
        DebeziumEngine.create(Json.class)
            .using(properties)
            .notifying(
                event -> {
                  System.out.println(
                      event.destination() + "\t" + event.key() + "\t" + event.value());
                  System.out.flush();
                })
            .using(
                (success, message, error) -> {
                  System.err.println("ended: " + success + " " + message);
                  if (error != null) error.printStackTrace();
                  done.countDown();
                })
            .build();
    Thread thread = new Thread(engine);
    thread.setDaemon(true);
    thread.start();
    // The end of the input ends the program, so that it does not outlive the test.
    Thread input =
        new Thread(
            () -> {
              try {
                while (System.in.read() >= 0) {}
                engine.close();
              } catch (Exception error) {
                error.printStackTrace();
              }
              done.countDown();
            });
    input.setDaemon(true);
    input.start();
    done.await();
    System.exit(0);
  }
}
