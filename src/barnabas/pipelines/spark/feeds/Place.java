package barnabas.feeds;

import org.apache.spark.sql.connector.read.streaming.Offset;

/** Offsets of partitions, see offsets.py. */
public class Place extends Offset {
  private final String json;

  public Place(String json) {
    this.json = json;
  }

  public String json() {
    return json;
  }
}
