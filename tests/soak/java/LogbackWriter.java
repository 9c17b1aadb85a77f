import ch.qos.logback.classic.LoggerContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Writes numbered lines through Logback, which rotates by size. */
public class LogbackWriter {
    public static void main(String[] args) throws Exception {
        String name = args[1];
        System.setProperty("folder", args[0]);
        System.setProperty("name", name);
        long end = System.nanoTime() + (long) (Double.parseDouble(args[2]) * 1e9);
        int perTick = Integer.parseInt(args[3]);
        System.setProperty("logback.configurationFile", args[4]);
        Logger log = LoggerFactory.getLogger("w");
        int written = 0;
        while (System.nanoTime() < end) {
            for (int i = 0; i < perTick; i++) {
                log.info(String.format("%s %07d some words to make it a line", name, written++));
            }
            Thread.sleep(50);
        }
        ((LoggerContext) LoggerFactory.getILoggerFactory()).stop();
        System.out.println(written);
    }
}
