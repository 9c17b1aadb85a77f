package barnabas.tables;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.MathContext;
import java.math.RoundingMode;

/**
 * A sum from which values can be taken away again: exact, floating point numbers too, so that nothing of a value stays and
 * the order of changes does not matter. It is rounded once, for the result.
 */
final class Sum {
  long count;
  private BigDecimal sum = BigDecimal.ZERO;
  private long nans, highest, lowest;

  void add(Object value, int sign) {
    count += sign;
    if (value instanceof BigDecimal) change((BigDecimal) value, sign);
    else if (value instanceof Double || value instanceof Float) {
      double number = ((Number) value).doubleValue();
      if (Double.isNaN(number)) nans += sign;
      else if (number == Double.POSITIVE_INFINITY) highest += sign;
      else if (number == Double.NEGATIVE_INFINITY) lowest += sign;
      else change(new BigDecimal(number), sign);
    } else change(BigDecimal.valueOf(((Number) value).longValue()), sign);
  }

  private void change(BigDecimal value, int sign) {
    sum = sign > 0 ? sum.add(value) : sum.subtract(value);
    if (sum.signum() == 0) sum = BigDecimal.ZERO;
  }

  private double special() {
    if (nans > 0 || (highest > 0 && lowest > 0)) return Double.NaN;
    return highest > 0 ? Double.POSITIVE_INFINITY : Double.NEGATIVE_INFINITY;
  }

  /** The sum, or null for no values; `Fits.NOT` if the type cannot hold it. */
  Object total(Fits type) {
    if (count == 0) return null;
    if (type.floats && nans + highest + lowest > 0) return Double.valueOf(special());
    return type.floats ? (Object) Double.valueOf(sum.doubleValue()) : type.of(sum);
  }

  Object average(Fits type) {
    if (count == 0) return null;
    if (nans + highest + lowest > 0) return Double.valueOf(special());
    BigDecimal divisor = BigDecimal.valueOf(count);
    if (type.floats) return Double.valueOf(sum.divide(divisor, MathContext.DECIMAL128).doubleValue());
    return type.of(sum.divide(divisor, type.scale, RoundingMode.HALF_UP));
  }

  void write(DataOutputStream out) throws IOException {
    out.writeLong(count);
    out.writeLong(nans);
    out.writeLong(highest);
    out.writeLong(lowest);
    byte[] digits = sum.unscaledValue().toByteArray();
    out.writeInt(sum.scale());
    out.writeInt(digits.length);
    out.write(digits);
  }

  void read(DataInputStream in) throws IOException {
    count = in.readLong();
    nans = in.readLong();
    highest = in.readLong();
    lowest = in.readLong();
    int scale = in.readInt();
    byte[] digits = new byte[in.readInt()];
    in.readFully(digits);
    sum = new BigDecimal(new BigInteger(digits), scale);
  }
}
