package barnabas.feeds;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.unsafe.types.UTF8String;

/** The ranges that one task reads, as its only row. */
public class Ranges implements InputPartition, PartitionReader {
  private final String json;
  private boolean isRead = false;

  public Ranges(String json) {
    this.json = json;
  }

  public boolean next() {
    boolean isThere = !isRead;
    isRead = true;
    return isThere;
  }

  public Object get() {
    return new GenericInternalRow(new Object[] {UTF8String.fromString(json)});
  }

  public void close() {}
}
