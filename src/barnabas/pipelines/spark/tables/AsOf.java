package barnabas.tables;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.*;

/**
 * Pairs of the rows of a stream (left) with those that a table (right) had at the time of the stream's row.
 *
 * <p>Rows as for Join; the time of a stream's row is that of its change. Each row of the table is kept with the time from
 * which it was there, or was gone, and goes when the next one of the same id is older than `history` (microseconds) before the newest. In a
 * micro-batch the changes of the table come first, so that the order of arrival within it has no influence.
 */
public class AsOf extends StatefulProcessor {
  private static final int FROM = 0, ID = 1, GONE = 2, ROW = 3;
  private final Encoder version;
  private final boolean keepsLeft;
  private final long history;
  private transient MapState versions;

  public AsOf(Encoder version, Boolean keepsLeft, String history) {
    this.version = version;
    this.keepsLeft = keepsLeft.booleanValue();
    this.history = Long.parseLong(history);
  }

  public void init(OutputMode outputMode, TimeMode timeMode) {
    versions = getHandle().getMapState("versions", Encoders.BINARY(), version, TTLConfig.NONE());
  }

  public scala.collection.Iterator handleInputRows(
      Object key, scala.collection.Iterator rows, TimerValues timers) {
    ArrayList sorted = Change.sorted(rows);
    boolean alone = Join.anyNull(((Row) key).getStruct(0));
    boolean changed = false;
    for (int i = 0; i < sorted.size() && !alone; i++) {
      Row row = (Row) sorted.get(i);
      if (row.getInt(Change.SIDE) != 1) continue;
      byte[] id = (byte[]) row.get(Join.ID);
      long from = row.getStruct(Change.CHANGE).getLong(Change.AT);
      boolean gone = row.getInt(Change.SIGN) < 0;
      Object[] kept = {Long.valueOf(from), id, Boolean.valueOf(gone), gone ? null : row.getStruct(Join.RIGHT)};
      versions.updateValue(placeOf(id, from), RowFactory.create(kept));
      changed = true;
    }
    ArrayList known = alone ? new ArrayList() : all();
    ArrayList out = new ArrayList(sorted.size());
    for (int i = 0; i < sorted.size(); i++) {
      Row row = (Row) sorted.get(i);
      if (row.getInt(Change.SIDE) == 0) meet(out, row, known);
    }
    if (changed) forget(known);
    return Change.scalaOf(out);
  }

  private static byte[] placeOf(byte[] id, long from) {
    return ByteBuffer.allocate(8 + id.length).putLong(from).put(id).array();
  }

  private ArrayList all() {
    ArrayList all = new ArrayList();
    scala.collection.Iterator found = versions.iterator();
    while (found.hasNext()) all.add(((scala.Tuple2) found.next())._2());
    return all;
  }

  /** By id, the newest version that was there at a time, or was gone then. */
  private static HashMap at(ArrayList known, long time) {
    HashMap newest = new HashMap();
    for (int i = 0; i < known.size(); i++) {
      Row row = (Row) known.get(i);
      if (row.getLong(FROM) > time) continue;
      Object id = ByteBuffer.wrap((byte[]) row.get(ID));
      Row other = (Row) newest.get(id);
      if (other == null || other.getLong(FROM) < row.getLong(FROM)) newest.put(id, row);
    }
    return newest;
  }

  private void meet(ArrayList out, Row row, ArrayList known) {
    Row change = row.getStruct(Change.CHANGE);
    boolean met = false;
    for (Iterator found = at(known, change.getLong(Change.AT)).values().iterator(); found.hasNext(); ) {
      Row version = (Row) found.next();
      if (version.getBoolean(GONE)) continue;
      pair(out, change, row.getStruct(Join.LEFT), version.getStruct(ROW));
      met = true;
    }
    if (!met && keepsLeft) pair(out, change, row.getStruct(Join.LEFT), null);
  }

  private static void pair(ArrayList out, Row change, Row left, Row right) {
    Row numbered = Change.numbered(change, change.getLong(Change.AT), out.size());
    out.add(RowFactory.create(new Object[] {Integer.valueOf(1), numbered, left, right}));
  }

  private void forget(ArrayList known) {
    long newest = Long.MIN_VALUE;
    for (int i = 0; i < known.size(); i++) newest = Math.max(newest, ((Row) known.get(i)).getLong(FROM));
    long bound = newest - history;
    HashMap needed = at(known, bound);
    for (int i = 0; i < known.size(); i++) {
      Row row = (Row) known.get(i);
      if (row.getLong(FROM) > bound) continue;
      byte[] id = (byte[]) row.get(ID);
      boolean last = needed.get(ByteBuffer.wrap(id)) == row;
      if (!last || row.getBoolean(GONE)) versions.removeKey(placeOf(id, row.getLong(FROM)));
    }
  }
}
