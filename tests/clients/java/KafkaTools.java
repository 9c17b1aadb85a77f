import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's own command-line tools, one after the other in one JVM. Each line of standard input is a class and its
 * arguments, with tabs between; the answer is what the tool printed, then a line that begins with a form feed.
 */
public class KafkaTools {
    static final class Ended extends RuntimeException {
        Ended() {
            super(null, null, false, false);
        }
    }

    static ByteArrayOutputStream printed;
    static byte[] answer;
    static int code;

    /** A tool that ends has said all; some catch what ends it here and would complain about it. */
    static void end(int exitCode) {
        if (answer == null) {
            answer = printed.toByteArray();
            code = exitCode;
        }
        throw new Ended();
    }

    public static void main(String[] none) throws Exception {
        Exit.setExitProcedure((exitCode, message) -> end(exitCode));
        Exit.setHaltProcedure((exitCode, message) -> end(exitCode));
        PrintStream answers = System.out;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            printed = new ByteArrayOutputStream();
            answer = null;
            code = 0;
            PrintStream out = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(out);
            System.setErr(out);
            try {
                Class.forName(words[0]).getMethod("main", String[].class)
                    .invoke(null, (Object) Arrays.copyOfRange(words, 1, words.length));
            } catch (java.lang.reflect.InvocationTargetException error) {
                if (!(error.getCause() instanceof Ended)) {
                    code = 1;
                    out.println(error.getCause());
                }
            }
            out.flush();
            answers.write(answer != null ? answer : printed.toByteArray());
            answers.println("\n\f" + code);
            answers.flush();
        }
    }
}
