package barnabas.tables;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.MapState;

/** The rows of one group of Totals, as far as its aggregates need to know them. */
final class Group {
  long rows;
  private final Totals.Call[] calls;
  private final MapState[] values;
  private final Sum[] sums;
  private final long[] distinct;
  private final Object[] best;
  private final boolean[] gone;

  Group(Totals.Call[] calls, MapState[] values, Row state) {
    this.calls = calls;
    this.values = values;
    sums = new Sum[calls.length];
    distinct = new long[values.length];
    best = new Object[calls.length];
    gone = new boolean[calls.length];
    for (int i = 0; i < calls.length; i++) sums[i] = new Sum();
    if (state != null) read(state);
  }

  private void read(Row state) {
    rows = state.getLong(0);
    Row kept = state.getStruct(2);
    for (int i = 0, place = 0; i < calls.length; i++) {
      if (calls[i].keepsBest()) best[i] = kept.get(place++);
    }
    try {
      DataInputStream in = new DataInputStream(new ByteArrayInputStream((byte[]) state.get(1)));
      for (int i = 0; i < sums.length; i++) sums[i].read(in);
      for (int i = 0; i < distinct.length; i++) distinct[i] = in.readLong();
    } catch (IOException error) {
      throw new IllegalStateException(error);
    }
  }

  /** rows, sums, and the least or greatest values. */
  Row state() {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try {
      DataOutputStream out = new DataOutputStream(bytes);
      for (int i = 0; i < sums.length; i++) sums[i].write(out);
      for (int i = 0; i < distinct.length; i++) out.writeLong(distinct[i]);
    } catch (IOException error) {
      throw new IllegalStateException(error);
    }
    ArrayList kept = new ArrayList(calls.length + 1);
    for (int i = 0; i < calls.length; i++) if (calls[i].keepsBest()) kept.add(best[i]);
    kept.add(Boolean.TRUE); // a struct has a field
    return RowFactory.create(
        new Object[] {Long.valueOf(rows), bytes.toByteArray(), RowFactory.create(kept.toArray())});
  }

  /** All that is kept: its state, and each kept value with its number. */
  Row whole() {
    Row state = state();
    Object[] all = new Object[3 + values.length];
    for (int i = 0; i < 3; i++) all[i] = state.get(i);
    for (int i = 0; i < values.length; i++) {
      ArrayList pairs = new ArrayList();
      scala.collection.Iterator found = values[i].iterator();
      while (found.hasNext()) {
        scala.Tuple2 pair = (scala.Tuple2) found.next();
        pairs.add(RowFactory.create(new Object[] {((Row) pair._1()).get(0), pair._2()}));
      }
      all[3 + i] = scala.jdk.javaapi.CollectionConverters.asScala(pairs).toSeq();
    }
    return RowFactory.create(all);
  }

  void add(Row given, int sign) {
    rows += sign;
    for (int i = 0; i < values.length; i++) {
      Object value = given.get(valueOf(i));
      if (value != null) count(i, value, sign);
    }
    for (int i = 0; i < calls.length; i++) {
      Totals.Call call = calls[i];
      Object value = given.get(call.value);
      if (value == null) continue;
      if (call.function.equals("sum") || call.function.equals("avg")) sums[i].add(value, sign);
      else if (call.function.equals("count")) sums[i].count += sign;
      else if (call.keepsBest()) {
        boolean there = call.kept < 0 || left(call.kept, value) > 0;
        if (!there && best[i] != null && Values.ORDER.compare(best[i], value) == 0) gone[i] = true;
        if (there && sign > 0 && !gone[i] && (best[i] == null || call.better(value, best[i]))) best[i] = value;
      }
    }
  }

  private int valueOf(int kept) {
    for (int i = 0; i < calls.length; i++) if (calls[i].kept == kept) return calls[i].value;
    throw new IllegalStateException("no aggregate uses the values");
  }

  private static Row keyOf(Object value) {
    return RowFactory.create(new Object[] {value});
  }

  private long left(int kept, Object value) {
    Object number = values[kept].getValue(keyOf(value));
    return number == null ? 0 : ((Long) number).longValue();
  }

  private void count(int kept, Object value, int sign) {
    long before = left(kept, value), now = before + sign;
    if (before <= 0 && now > 0) distinct[kept]++;
    if (before > 0 && now <= 0) distinct[kept]--;
    if (now == 0) values[kept].removeKey(keyOf(value));
    else values[kept].updateValue(keyOf(value), Long.valueOf(now));
  }

  /** The results; null if the group has no rows. The last one is the number of an aggregate that does not fit its type. */
  Row result() {
    if (rows <= 0) {
      java.util.Arrays.fill(best, null);
      java.util.Arrays.fill(gone, false);
      return null;
    }
    Object[] results = new Object[calls.length + 1];
    for (int i = 0; i < calls.length; i++) {
      Object found = one(i);
      if (found == Fits.NOT) results[calls.length] = Integer.valueOf(i);
      else results[i] = found;
    }
    return RowFactory.create(results);
  }

  private Object one(int i) {
    Totals.Call call = calls[i];
    if (call.function.equals("count")) return Long.valueOf(sums[i].count);
    if (call.function.equals("sum")) return sums[i].total(call.type);
    if (call.function.equals("avg")) return sums[i].average(call.type);
    if (call.function.equals("distinct")) return Long.valueOf(distinct[call.kept]);
    if (call.keepsBest()) {
      if (gone[i]) searchBest(i);
      return best[i];
    }
    return scala.jdk.javaapi.CollectionConverters.asScala(sorted(call)).toSeq();
  }

  private void searchBest(int i) {
    gone[i] = false;
    best[i] = null;
    scala.collection.Iterator found = values[calls[i].kept].iterator();
    while (found.hasNext()) {
      scala.Tuple2 pair = (scala.Tuple2) found.next();
      if (((Long) pair._2()).longValue() <= 0) continue;
      Object value = ((Row) pair._1()).get(0);
      if (best[i] == null || calls[i].better(value, best[i])) best[i] = value;
    }
  }

  /** The values in their order: each as often as it occurs for a list, once for a set. */
  private ArrayList sorted(Totals.Call call) {
    ArrayList all = new ArrayList();
    scala.collection.Iterator found = values[call.kept].iterator();
    boolean once = call.function.equals("set");
    while (found.hasNext()) {
      scala.Tuple2 pair = (scala.Tuple2) found.next();
      Object value = ((Row) pair._1()).get(0);
      long times = ((Long) pair._2()).longValue();
      for (long n = once ? Math.min(times, 1) : times; n > 0; n--) all.add(value);
    }
    Collections.sort(all, Values.ORDER);
    return all;
  }
}
