package barnabas.feeds;

import java.util.Collections;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** What Spark asks for on its way from the name of a source to a Feed. */
public class Topics implements TableProvider, SupportsRead, ScanBuilder, Scan {
  static final ThreadLocal OPENING = new ThreadLocal();
  private final Feed feed = (Feed) OPENING.get();

  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return readSchema();
  }

  public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
    return this;
  }

  public String name() {
    return "barnabas";
  }

  public StructType schema() {
    return readSchema();
  }

  public Set capabilities() {
    return Collections.singleton(TableCapability.MICRO_BATCH_READ);
  }

  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return this;
  }

  public Scan build() {
    return this;
  }

  public StructType readSchema() {
    return new StructType().add("ranges", DataTypes.StringType, false);
  }

  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    return feed;
  }
}
