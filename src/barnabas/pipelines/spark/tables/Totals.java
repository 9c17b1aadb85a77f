package barnabas.tables;

import java.util.ArrayList;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.ImplicitGroupingKeyTracker;
import org.apache.spark.sql.streaming.*;

/**
 * Groups of rows and their results, as a table: for a change of a row, the result before goes and the new one comes.
 *
 * <p>Payload: the values of the aggregates, in a struct. A group is in the table while it has rows. Aggregates that need to
 * know which values are left keep each value with its number, the others only sums.
 *
 * <p>calls: for each aggregate `function:number of its value:number of its kept values, or -1:type`, separated by blanks.
 * kept: the encoders of the kept values. each: whether every change makes a
 * result, not only the last of a micro-batch. told: whether a result is followed by what its group keeps; then each
 * micro-batch makes a result of a group, because what it keeps may have changed although its result has not.
 */
public class Totals extends StatefulProcessorWithInitialState {
  private final Encoder state;
  private final Object[] kept;
  private final String calls;
  private final boolean each, told;
  private transient ValueState totals;
  private transient MapState[] values;
  private transient Call[] parsed;

  public Totals(Encoder state, Object[] kept, String calls, Boolean each, Boolean told) {
    this.state = state;
    this.kept = kept;
    this.calls = calls;
    this.each = each.booleanValue();
    this.told = told.booleanValue();
  }

  public void init(OutputMode outputMode, TimeMode timeMode) {
    totals = getHandle().getValueState("totals", state, TTLConfig.NONE());
    values = new MapState[kept.length];
    for (int i = 0; i < kept.length; i++) {
      values[i] =
          getHandle()
              .getMapState(
                  "values" + i, (Encoder) kept[i], org.apache.spark.sql.Encoders.LONG(), TTLConfig.NONE());
    }
    String[] texts = calls.isEmpty() ? new String[0] : calls.split(" ");
    parsed = new Call[texts.length];
    for (int i = 0; i < texts.length; i++) parsed[i] = new Call(texts[i]);
  }

  public scala.collection.Iterator handleInputRows(
      Object key, scala.collection.Iterator rows, TimerValues timers) {
    Group group = new Group(parsed, values, (Row) totals.get());
    ArrayList out = new ArrayList(2);
    Row before = group.result();
    java.util.Iterator given = each ? Change.sorted(rows).iterator() : java(rows);
    Row last = null;
    while (given.hasNext()) {
      Row row = (Row) given.next();
      if (each && last != null && !Change.sameCause(last.getStruct(Change.CHANGE), row.getStruct(Change.CHANGE))) {
        before = changed(out, (Row) key, last, before, group);
      }
      group.add(row.getStruct(Change.PAYLOAD), row.getInt(Change.SIGN));
      if (each || last == null || Change.ORDER.compare(last, row) < 0) last = row;
    }
    if (!told) changed(out, (Row) key, last, before, group);
    if (group.rows == 0) totals.clear();
    else totals.update(group.state());
    if (told) told(out, (Row) key, last.getStruct(Change.CHANGE), before, group);
    return Change.scalaOf(out);
  }

  /**
   * A group as it was before the first micro-batch. The key is that of any group of the task; the row names the task, and has
   * the group's own key and what it kept (see Group.whole).
   */
  public void handleInitialState(Object key, Object before, TimerValues timers) {
    int task = ((Row) before).getInt(1);
    if (task != org.apache.spark.TaskContext.getPartitionId()) {
      throw new IllegalStateException("the state of task " + task + " came to another one");
    }
    Row group = ((Row) before).getStruct(2), kept = group.getStruct(1);
    ImplicitGroupingKeyTracker.setImplicitKey(RowFactory.create(new Object[] {group.get(0)}));
    totals.update(RowFactory.create(new Object[] {kept.get(0), kept.get(1), kept.get(2)}));
    for (int i = 0; i < values.length; i++) {
      java.util.List pairs = kept.getList(3 + i);
      for (int j = 0; j < pairs.size(); j++) {
        Row pair = (Row) pairs.get(j);
        values[i].updateValue(RowFactory.create(new Object[] {pair.get(0)}), pair.get(1));
      }
    }
  }

  private static void told(ArrayList out, Row key, Row change, Row before, Group group) {
    Row now = group.result();
    if (before != null) out.add(with(made(-1, change, out.size(), key, before), null));
    if (now != null) out.add(with(made(1, change, out.size(), key, now), group.whole()));
  }

  private static Row with(Row row, Row state) {
    return RowFactory.create(new Object[] {row.get(0), row.get(1), row.get(2), row.get(3), state});
  }

  private static java.util.Iterator java(scala.collection.Iterator rows) {
    return scala.jdk.javaapi.CollectionConverters.asJava(rows);
  }

  private static Row changed(ArrayList out, Row key, Row last, Row before, Group group) {
    Row now = group.result();
    Row change = last.getStruct(Change.CHANGE);
    if (before == null ? now == null : before.equals(now)) return before;
    if (before != null) out.add(made(-1, change, out.size(), key, before));
    if (now != null) out.add(made(1, change, out.size(), key, now));
    return now;
  }

  private static Row made(int sign, Row change, int seq, Row key, Row result) {
    Row numbered = Change.numbered(change, change.getLong(Change.AT), seq);
    return RowFactory.create(new Object[] {Integer.valueOf(sign), numbered, key.get(0), result});
  }

  /** An aggregate: its function, the number of its value, that of its kept values, and the type of its result. */
  static final class Call {
    final String function;
    final int value, kept;
    final Fits type;

    Call(String text) {
      String[] parts = text.split(":");
      function = parts[0];
      value = Integer.parseInt(parts[1]);
      kept = Integer.parseInt(parts[2]);
      type = new Fits(parts[3]);
    }

    boolean keepsBest() {
      return function.equals("min") || function.equals("max");
    }

    boolean better(Object one, Object other) {
      int order = Values.ORDER.compare(one, other);
      return function.equals("min") ? order < 0 : order > 0;
    }
  }
}
