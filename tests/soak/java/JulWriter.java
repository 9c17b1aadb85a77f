import java.util.logging.FileHandler;
import java.util.logging.Formatter;
import java.util.logging.LogRecord;

/** Writes numbered lines through java.util.logging, which rotates by size: name.log.0, name.log.1, ... */
public class JulWriter {
    public static void main(String[] args) throws Exception {
        String folder = args[0], name = args[1];
        long end = System.nanoTime() + (long) (Double.parseDouble(args[2]) * 1e9);
        int perTick = Integer.parseInt(args[3]);
        FileHandler handler = new FileHandler(folder + "/" + name + ".log.%g", 60_000, 500, false);
        handler.setFormatter(new Formatter() {
            @Override public String format(LogRecord record) {
                return record.getMessage() + "\n";
            }
        });
        int written = 0;
        while (System.nanoTime() < end) {
            for (int i = 0; i < perTick; i++) {
                String line = String.format("%s %07d some words to make it a line", name, written++);
                handler.publish(new LogRecord(java.util.logging.Level.INFO, line));
            }
            Thread.sleep(50);
        }
        handler.close();
        System.out.println(written);
    }
}
