package barnabas.feeds;

import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;

public class RangesReaderFactory implements PartitionReaderFactory {
  public PartitionReader createReader(InputPartition partition) {
    return (Ranges) partition;
  }
}
