package barnabas.tables;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;

/**
 * The rows that all operators on tables get: key, side, sign, change and, from PAYLOAD on, what the row stands for.
 *
 * <p>sign: 1 for a row that is in the table from now on, -1 for one that is not in it any more. change: which record of
 * which topic caused it (at, topic, partition, offset) and its number among the rows of the same operator with that cause.
 * All operators sort by it, so that they see all changes in the same order.
 */
public final class Change implements Comparator {
  static final int KEY = 0, SIDE = 1, SIGN = 2, CHANGE = 3, PAYLOAD = 4;
  static final int AT = 0, TOPIC = 1, PARTITION = 2, OFFSET = 3, SEQ = 4;
  /** In one order: what is taken away by a record before what is added by it. */
  static final Comparator ORDER = new Change();

  public int compare(Object a, Object b) {
    Row left = (Row) a, right = (Row) b;
    Row one = left.getStruct(CHANGE), other = right.getStruct(CHANGE);
    int order = Long.compare(one.getLong(AT), other.getLong(AT));
    // At the same time, a row of the right side is first: a table before the stream that is joined with it.
    if (order == 0 && !sameCause(one, other)) {
      order = Integer.compare(right.getInt(SIDE), left.getInt(SIDE));
    }
    if (order == 0) order = text(one).compareTo(text(other));
    if (order == 0) order = Integer.compare(one.getInt(PARTITION), other.getInt(PARTITION));
    if (order == 0) order = Long.compare(one.getLong(OFFSET), other.getLong(OFFSET));
    if (order == 0) order = Integer.compare(left.getInt(SIGN), right.getInt(SIGN));
    return order != 0 ? order : Integer.compare(one.getInt(SEQ), other.getInt(SEQ));
  }

  private static String text(Row change) {
    return change.isNullAt(TOPIC) ? "" : change.getString(TOPIC);
  }

  static boolean samePlace(Row one, Row other) {
    return one.getInt(PARTITION) == other.getInt(PARTITION) && text(one).equals(text(other));
  }

  static boolean sameCause(Row one, Row other) {
    return one.getLong(OFFSET) == other.getLong(OFFSET) && samePlace(one, other);
  }

  /** The rows of one key in a micro-batch, in order. */
  static ArrayList sorted(java.util.Iterator rows) {
    ArrayList all = new ArrayList(2);
    while (rows.hasNext()) all.add(rows.next());
    if (all.size() > 1) Collections.sort(all, ORDER);
    return all;
  }

  static ArrayList sorted(scala.collection.Iterator rows) {
    return sorted(scala.jdk.javaapi.CollectionConverters.asJava(rows));
  }

  static scala.collection.Iterator scalaOf(ArrayList rows) {
    return scala.jdk.javaapi.CollectionConverters.asScala(rows.iterator());
  }

  /** The same cause with another time and number. */
  static Row numbered(Row change, long at, int seq) {
    return RowFactory.create(
        new Object[] {
          Long.valueOf(at), change.get(TOPIC), change.get(PARTITION), change.get(OFFSET), Integer.valueOf(seq)
        });
  }
}
