package barnabas.tables;

import java.util.ArrayList;
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
    for (int i = 0; i < sorted.size(); i++) {
      Row row = (Row) sorted.get(i);
      out.change = row.getStruct(Change.CHANGE);
      boolean ofLeft = row.getInt(Change.SIDE) == 0;
      int sign = row.getInt(Change.SIGN);
      Row own = row.getStruct(ofLeft ? LEFT : RIGHT);
      if (alone) {
        if (ofLeft ? keepsLeft : keepsRight) out.pair(sign, own, null, ofLeft);
      } else if (ofLeft && ofStream) {
        pairs(out, 1, own, right, true, keepsLeft);
      } else if (ofStream) {
        store(right, (byte[]) row.get(ID), sign, own);
      } else {
        change(out, sign, (byte[]) row.get(ID), own, ofLeft);
      }
    }
    return Change.scalaOf(out.rows);
  }

  private static boolean anyNull(Row key) {
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
      pairs(out, -1, row, others, ofLeft, keepsOwn);
      if (keepsOthers && !own.exists()) lone(out, 1, others, ofLeft);
    } else {
      if (keepsOthers && !own.exists()) lone(out, -1, others, ofLeft);
      own.updateValue(id, row);
      pairs(out, 1, row, others, ofLeft, keepsOwn);
    }
  }

  private static void pairs(Out out, int sign, Row own, MapState others, boolean ofLeft, boolean keepsOwn) {
    scala.collection.Iterator found = others.values();
    if (!found.hasNext() && keepsOwn) out.pair(sign, own, null, ofLeft);
    while (found.hasNext()) out.pair(sign, own, (Row) found.next(), ofLeft);
  }

  private static void lone(Out out, int sign, MapState others, boolean ofLeft) {
    scala.collection.Iterator found = others.values();
    while (found.hasNext()) out.pair(sign, null, (Row) found.next(), ofLeft);
  }

  static final class Out {
    final ArrayList rows = new ArrayList(2);
    Row change;

    void pair(int sign, Row own, Row other, boolean ofLeft) {
      Row numbered = Change.numbered(change, change.getLong(Change.AT), rows.size());
      rows.add(
          RowFactory.create(
              new Object[] {
                Integer.valueOf(sign), numbered, ofLeft ? own : other, ofLeft ? other : own
              }));
    }
  }
}
