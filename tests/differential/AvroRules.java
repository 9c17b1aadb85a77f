import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.avro.AvroRuntimeException;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;

/** Lines "READER tab WRITER" in; per line, whether Avro's own library says that the reader can read the writer's data. */
class AvroRules {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        StringBuilder out = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            int tab = line.indexOf('\t');
            out.append(verdict(line.substring(0, tab), line.substring(tab + 1))).append('\n');
        }
        System.out.print(out);
    }

    private static String verdict(String readers, String writers) {
        Schema reader, writer;
        try {
            reader = new Schema.Parser().parse(readers);
            writer = new Schema.Parser().parse(writers);
        } catch (RuntimeException refused) {
            return "REFUSED";
        }
        try {
            return SchemaCompatibility.checkReaderWriterCompatibility(reader, writer).getType().name();
        } catch (AvroRuntimeException refused) { // a field has the name of one field of the writer and the alias of another
            return "AMBIGUOUS";
        }
    }
}
