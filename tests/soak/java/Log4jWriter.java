import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/** Writes numbered lines through Log4j 2, which rotates by size and packs what it has rotated. */
public class Log4jWriter {
    public static void main(String[] args) throws Exception {
        String name = args[1];
        System.setProperty("folder", args[0]);
        System.setProperty("name", name);
        long end = System.nanoTime() + (long) (Double.parseDouble(args[2]) * 1e9);
        int perTick = Integer.parseInt(args[3]);
        System.setProperty("log4j2.configurationFile", args[4]);
        Logger log = LogManager.getLogger("w");
        int written = 0;
        while (System.nanoTime() < end) {
            for (int i = 0; i < perTick; i++) {
                log.info(String.format("%s %07d some words to make it a line", name, written++));
            }
            Thread.sleep(50);
        }
        LogManager.shutdown();
        System.out.println(written);
    }
}
