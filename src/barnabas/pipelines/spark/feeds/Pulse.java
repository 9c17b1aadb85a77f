package barnabas.feeds;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.sql.streaming.StreamingQueryProgress;
import org.apache.spark.sql.streaming.StreamingQueryStatus;

/** What all running queries do, in one call from Python: with a hundred of them, separate calls cost too much. */
public class Pulse {
  private final SparkSession spark;

  public Pulse(SparkSession spark) {
    this.spark = spark;
  }

  /**
   * A line for each active query: the id of its run, whether a trigger is active and data is available (1 or 0), the time of
   * its last progress report or nothing, and what it does in words.
   */
  public String taken() {
    StringBuilder text = new StringBuilder();
    StreamingQuery[] queries = spark.streams().active();
    for (int i = 0; i < queries.length; i++) {
      StreamingQueryStatus status = queries[i].status();
      StreamingQueryProgress last = queries[i].lastProgress();
      text.append(queries[i].runId()).append('\t');
      text.append(status.isTriggerActive() ? '1' : '0').append('\t');
      text.append(status.isDataAvailable() ? '1' : '0').append('\t');
      text.append(last == null ? "" : last.timestamp()).append('\t');
      text.append(status.message().replace('\n', ' ')).append('\n');
    }
    return text.toString();
  }
}
