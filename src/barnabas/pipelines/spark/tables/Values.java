package barnabas.tables;

import java.util.Comparator;
import org.apache.spark.sql.Row;

/** Values as Spark sorts them: texts by their code points, NaN after all numbers, null first within arrays and structs. */
public final class Values implements Comparator {
  static final Comparator ORDER = new Values();

  public int compare(Object a, Object b) {
    if (a == null || b == null) return a == b ? 0 : a == null ? -1 : 1;
    if (a instanceof String) return texts((String) a, (String) b);
    if (a instanceof byte[]) return java.util.Arrays.compareUnsigned((byte[]) a, (byte[]) b);
    if (a instanceof Row) {
      Row one = (Row) a, other = (Row) b;
      for (int i = 0; i < one.length(); i++) {
        int order = compare(one.get(i), other.get(i));
        if (order != 0) return order;
      }
      return 0;
    }
    if (a instanceof scala.collection.Seq) {
      scala.collection.Seq one = (scala.collection.Seq) a, other = (scala.collection.Seq) b;
      for (int i = 0; i < one.length() && i < other.length(); i++) {
        int order = compare(one.apply(i), other.apply(i));
        if (order != 0) return order;
      }
      return Integer.compare(one.length(), other.length());
    }
    return ((Comparable) a).compareTo(b);
  }

  private static int texts(String one, String other) {
    int length = Math.min(one.length(), other.length());
    for (int i = 0; i < length; i++) {
      char a = one.charAt(i), b = other.charAt(i);
      if (a == b) continue;
      // Halves of a pair stand for code points above all others.
      boolean pairs = Character.isSurrogate(a), otherPairs = Character.isSurrogate(b);
      return pairs == otherPairs ? Character.compare(a, b) : pairs ? 1 : -1;
    }
    return Integer.compare(one.length(), other.length());
  }
}
