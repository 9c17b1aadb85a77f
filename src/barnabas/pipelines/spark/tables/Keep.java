package barnabas.tables;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.*;

/**
 * Keeps the newest record of each key, and makes changes of records: the row before goes, the new one comes.
 *
 * <p>Payload: the record, null for a tombstone. Within a partition, records count in the order of their offsets, whatever
 * their times say: a record is as late as the latest before it.
 */
public class Keep extends StatefulProcessor {
  private final Encoder record;
  private transient ValueState kept;

  public Keep(Encoder record) {
    this.record = record;
  }

  public void init(OutputMode outputMode, TimeMode timeMode) {
    kept = getHandle().getValueState("record", record, TTLConfig.NONE());
  }

  public scala.collection.Iterator handleInputRows(
      Object key, scala.collection.Iterator rows, TimerValues timers) {
    ArrayList sorted = timed(rows);
    ArrayList out = new ArrayList(2 * sorted.size());
    boolean lone = ((Row) key).isNullAt(0);
    Row now = lone ? null : (Row) kept.get();
    for (int i = 0; i < sorted.size(); i++) {
      Row row = (Row) sorted.get(i);
      Row change = row.getStruct(Change.CHANGE);
      if (now != null && !lone) out.add(made(-1, change, now));
      now = row.isNullAt(Change.PAYLOAD) ? null : row.getStruct(Change.PAYLOAD);
      if (now != null || lone) out.add(made(1, change, now));
    }
    if (!lone) {
      if (now == null) kept.clear();
      else kept.update(now);
    }
    return Change.scalaOf(out);
  }

  static Row made(int sign, Row change, Row record) {
    return RowFactory.create(new Object[] {Integer.valueOf(sign), change, record});
  }

  private static ArrayList timed(scala.collection.Iterator rows) {
    ArrayList all = new ArrayList(1);
    while (rows.hasNext()) all.add(rows.next());
    if (all.size() < 2) return all;
    Collections.sort(all, new ByOffset());
    Row before = null;
    long latest = 0;
    for (int i = 0; i < all.size(); i++) {
      Row row = (Row) all.get(i);
      Row change = row.getStruct(Change.CHANGE);
      long at = change.getLong(Change.AT);
      latest = before != null && Change.samePlace(before, change) ? Math.max(latest, at) : at;
      before = change;
      if (at != latest) {
        Object payload = row.get(Change.PAYLOAD);
        Row moved = Change.numbered(change, latest, change.getInt(Change.SEQ));
        all.set(
            i, RowFactory.create(new Object[] {row.get(0), row.get(1), row.get(2), moved, payload}));
      }
    }
    Collections.sort(all, Change.ORDER);
    return all;
  }

  static final class ByOffset implements Comparator {
    public int compare(Object a, Object b) {
      Row one = ((Row) a).getStruct(Change.CHANGE), other = ((Row) b).getStruct(Change.CHANGE);
      int order = String.valueOf(one.get(Change.TOPIC)).compareTo(String.valueOf(other.get(Change.TOPIC)));
      if (order == 0) order = Integer.compare(one.getInt(Change.PARTITION), other.getInt(Change.PARTITION));
      return order != 0 ? order : Long.compare(one.getLong(Change.OFFSET), other.getLong(Change.OFFSET));
    }
  }
}
