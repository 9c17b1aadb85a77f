import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.util.Base64;
import java.util.Map;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.avro.AvroSchema;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.SchemaMetadata;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException;
import org.apache.flink.avro.shaded.org.apache.avro.Schema;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericData;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericDatumReader;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericDatumWriter;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericRecord;
import org.apache.flink.avro.shaded.org.apache.avro.io.DecoderFactory;
import org.apache.flink.avro.shaded.org.apache.avro.io.EncoderFactory;
import org.apache.flink.formats.avro.registry.confluent.ConfluentSchemaRegistryCoder;

/**
 * Confluent's Java client and Flink's coder against a registry: {@code java Schemas URL SUBJECT RECORD}.
 *
 * <p>RECORD: a record in base64 that another client wrote. Prints one line of JSON with what was found.
 */
public final class Schemas {
    private Schemas() {}

    static final String FIRST = "{\"type\":\"record\",\"name\":\"User\",\"fields\":[{\"name\":\"name\",\"type\":\"string\"}]}";
    static final String SECOND =
            "{\"type\":\"record\",\"name\":\"User\",\"fields\":[{\"name\":\"name\",\"type\":\"string\"},"
                    + "{\"name\":\"age\",\"type\":\"int\",\"default\":7}]}";
    static final String BAD =
            "{\"type\":\"record\",\"name\":\"User\",\"fields\":[{\"name\":\"name\",\"type\":\"string\"},"
                    + "{\"name\":\"town\",\"type\":\"string\"}]}";

    public static void main(String[] args) throws Exception {
        String url = args[0];
        String subject = args[1];
        CachedSchemaRegistryClient client = new CachedSchemaRegistryClient(url, 100);
        int first = client.register(subject, new AvroSchema(FIRST));
        require(client.register(subject, new AvroSchema(FIRST)) == first, "the same schema got another id");
        require(client.testCompatibility(subject, new AvroSchema(SECOND)), "a field with a default suits");
        require(!client.testCompatibility(subject, new AvroSchema(BAD)), "a field without a default does not suit");
        require(
                client.testCompatibilityVerbose(subject, new AvroSchema(BAD)).stream()
                        .anyMatch(reason -> reason.contains("READER_FIELD_MISSING_DEFAULT_VALUE")),
                "the reason is missing");
        try {
            client.register(subject, new AvroSchema(BAD));
            throw new AssertionError("an incompatible schema was taken");
        } catch (RestClientException refused) {
            require(refused.getStatus() == 409, "status " + refused.getStatus());
        }
        int second = client.register(subject, new AvroSchema(SECOND));
        SchemaMetadata latest = client.getLatestSchemaMetadata(subject);
        require(latest.getId() == second && latest.getVersion() == 2, "the latest version is " + latest.getVersion());
        require(client.getAllVersions(subject).equals(java.util.List.of(1, 2)), "the versions");
        require(client.getVersion(subject, new AvroSchema(FIRST)) == 1, "the version of a schema");
        require(client.getAllSubjectsById(second).contains(subject), "the subjects of an id");
        require(client.getSchemaById(first).canonicalString().equals(FIRST), "the schema of an id");
        require(client.updateCompatibility(subject, "FULL").equals("FULL"), "a level");
        require(client.getCompatibility(subject).equals("FULL"), "the level");
        require(client.setMode("READONLY", subject).equals("READONLY"), "a mode");
        require(client.getMode(subject).equals("READONLY"), "the mode");
        client.setMode("READWRITE", subject);

        ConfluentSchemaRegistryCoder coder =
                new ConfluentSchemaRegistryCoder(subject, new CachedSchemaRegistryClient(url, 100));
        Schema schema = new Schema.Parser().parse(SECOND);
        GenericRecord user = new GenericData.Record(schema);
        user.put("name", "Java");
        user.put("age", 30);
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        coder.writeSchema(schema, out);
        var encoder = EncoderFactory.get().directBinaryEncoder(out, null);
        new GenericDatumWriter<GenericRecord>(schema).write(user, encoder);
        encoder.flush();

        var in = new ByteArrayInputStream(Base64.getDecoder().decode(args[2]));
        Schema writer = coder.readSchema(in);
        GenericRecord read =
                new GenericDatumReader<GenericRecord>(writer, schema)
                        .read(null, DecoderFactory.get().directBinaryDecoder(in, null));
        require(client.deleteSchemaVersion(Map.of(), subject, "1") == 1, "a version is deleted");
        System.out.printf(
                "{\"ok\": true, \"record\": \"%s\", \"read\": %s}%n",
                Base64.getEncoder().encodeToString(out.toByteArray()), read);
    }

    static void require(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
