package barnabas.tables;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.*;

/**
 * Pairs of rows whose keys are equal: of two tables, or of a stream (left) and a table.
 *
 * <p>Payload: the row's id, the left row, the right row; of the two rows, only that of the row's own side. The rows of a
 * stream are not kept; each makes pairs with the rows that the table has at that moment. A key with a null in it equals
 * none.
 */
public class Join extends StatefulProcessor {
  static final int ID = Change.PAYLOAD, LEFT = ID + 1, RIGHT = ID + 2;
  private final Encoder leftRow, rightRow;
  private final boolean ofStream, keepsLeft, keepsRight;
  private transient MapState left, right;

  public Join(
      Encoder leftRow, Encoder rightRow, Boolean ofStream, Boolean keepsLeft, Boolean keepsRight) {
    this.leftRow = leftRow;
    this.rightRow = rightRow;
    this.ofStream = ofStream.booleanValue();
    this.keepsLeft = keepsLeft.booleanValue();
    this.keepsRight = keepsRight.booleanValue();
  }

  public void init(OutputMode outputMode, TimeMode timeMode) {
    if (!ofStream) {
      left = getHandle().getMapState("left", Encoders.BINARY(), leftRow, TTLConfig.NONE());
    }
    right = getHandle().getMapState("right", Encoders.BINARY(), rightRow, TTLConfig.NONE());
  }

  public scala.collection.Iterator handleInputRows(
      Object key, scala.collection.Iterator rows, TimerValues timers) {
    ArrayList sorted = Change.sorted(rows);
    Out out = new Out();
    boolean alone = anyNull(((Row) key).getStruct(0));
    for (int i = 0, end; i < sorted.size(); i = end) {
      Row cause = ((Row) sorted.get(i)).getStruct(Change.CHANGE);
      end = i + 1;
      while (end < sorted.size() && Change.sameCause(cause, ((Row) sorted.get(end)).getStruct(Change.CHANGE))) end++;
      out.begin(cause, end - i > 1 && !ofStream);
      for (int j = i; j < end; j++) one(out, (Row) sorted.get(j), alone);
      out.end();
    }
    return Change.scalaOf(out.rows);
  }

  private void one(Out out, Row row, boolean alone) {
    boolean ofLeft = row.getInt(Change.SIDE) == 0;
    int sign = row.getInt(Change.SIGN);
    byte[] id = (byte[]) row.get(ID);
    Row own = row.getStruct(ofLeft ? LEFT : RIGHT);
    if (alone) {
      if (ofLeft ? keepsLeft : keepsRight) out.pair(sign, id, own, null, null, ofLeft);
    } else if (ofLeft && ofStream) {
      pairs(out, 1, id, own, right, true, keepsLeft);
    } else if (ofStream) {
      store(right, id, sign, own);
    } else {
      change(out, sign, id, own, ofLeft);
    }
  }

  static boolean anyNull(Row key) {
    for (int i = 0; i < key.length(); i++) {
      if (key.isNullAt(i)) return true;
    }
    return false;
  }

  private static void store(MapState rows, byte[] id, int sign, Row row) {
    if (sign > 0) rows.updateValue(id, row);
    else rows.removeKey(id);
  }

  private void change(Out out, int sign, byte[] id, Row row, boolean ofLeft) {
    MapState own = ofLeft ? left : right;
    boolean keepsOwn = ofLeft ? keepsLeft : keepsRight, keepsOthers = ofLeft ? keepsRight : keepsLeft;
    MapState others = ofLeft ? right : left;
    boolean known = own.containsKey(id);
    if (sign < 0 && !known) return;
    if (sign > 0 && known) change(out, -1, id, (Row) own.getValue(id), ofLeft);
    if (sign < 0) {
      own.removeKey(id);
      pairs(out, -1, id, row, others, ofLeft, keepsOwn);
      if (keepsOthers && !own.exists()) lone(out, 1, others, ofLeft);
    } else {
      if (keepsOthers && !own.exists()) lone(out, -1, others, ofLeft);
      own.updateValue(id, row);
      pairs(out, 1, id, row, others, ofLeft, keepsOwn);
    }
  }

  private static void pairs(
      Out out, int sign, byte[] id, Row own, MapState others, boolean ofLeft, boolean keepsOwn) {
    scala.collection.Iterator found = others.iterator();
    if (!found.hasNext() && keepsOwn) out.pair(sign, id, own, null, null, ofLeft);
    while (found.hasNext()) {
      scala.Tuple2 other = (scala.Tuple2) found.next();
      out.pair(sign, id, own, (byte[]) other._1(), (Row) other._2(), ofLeft);
    }
  }

  private static void lone(Out out, int sign, MapState others, boolean ofLeft) {
    scala.collection.Iterator found = others.iterator();
    while (found.hasNext()) {
      scala.Tuple2 other = (scala.Tuple2) found.next();
      out.pair(sign, null, null, (byte[]) other._1(), (Row) other._2(), ofLeft);
    }
  }

  /**
   * The changes of pairs. Of all changes of a pair with the same cause, only what is left of them: the pair as it was
   * before and as it is afterwards. In between, a row may have lost its partner and found it again.
   */
  static final class Out {
    final ArrayList rows = new ArrayList(2);
    private Row change;
    private LinkedHashMap gone, come;

    void begin(Row cause, boolean several) {
      change = cause;
      gone = several ? new LinkedHashMap() : null;
      come = several ? new LinkedHashMap() : null;
    }

    void pair(int sign, byte[] id, Row own, byte[] otherId, Row other, boolean ofLeft) {
      Row[] sides = ofLeft ? new Row[] {own, other} : new Row[] {other, own};
      if (gone == null) {
        add(sign, sides);
        return;
      }
      String name = ofLeft ? text(id) + text(otherId) : text(otherId) + text(id);
      if (sign > 0) come.put(name, sides);
      else if (come.remove(name) == null) gone.put(name, sides);
    }

    void end() {
      if (gone == null) return;
      for (Iterator left = gone.values().iterator(); left.hasNext(); ) add(-1, (Row[]) left.next());
      for (Iterator left = come.values().iterator(); left.hasNext(); ) add(1, (Row[]) left.next());
    }

    private static String text(byte[] id) {
      return id == null ? "-" : id.length + ":" + new String(id, StandardCharsets.ISO_8859_1);
    }

    private void add(int sign, Row[] sides) {
      Row numbered = Change.numbered(change, change.getLong(Change.AT), rows.size());
      rows.add(RowFactory.create(new Object[] {Integer.valueOf(sign), numbered, sides[0], sides[1]}));
    }
  }
}
