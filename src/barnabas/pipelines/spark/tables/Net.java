package barnabas.tables;

import java.util.ArrayList;
import org.apache.spark.api.java.function.FlatMapGroupsFunction;
import org.apache.spark.sql.Row;

/**
 * What is to be written for each key of an output: its last row in a micro-batch, which is a delete if its sign is -1.
 *
 * <p>Side 1 marks rows that are no changes of a key (failed records): all of them are written.
 */
public class Net implements FlatMapGroupsFunction {
  public java.util.Iterator call(Object key, java.util.Iterator rows) {
    ArrayList out = new ArrayList(1);
    Row last = null;
    while (rows.hasNext()) {
      Row row = (Row) rows.next();
      if (row.getInt(Change.SIDE) == 1) out.add(row);
      else if (last == null || Change.ORDER.compare(last, row) <= 0) last = row;
    }
    if (last != null) out.add(last);
    return out.iterator();
  }
}
