package barnabas.tables;

import java.math.BigDecimal;
import java.math.RoundingMode;

/** The type of a result: bigint, double, or decimal with its digits. */
final class Fits {
  static final Object NOT = new Object();
  final boolean floats;
  final int scale;
  private final int precision;

  Fits(String type) {
    floats = type.equals("double");
    String[] digits = type.startsWith("decimal") ? type.substring(8, type.length() - 1).split(",") : null;
    precision = digits == null ? 0 : Integer.parseInt(digits[0]);
    scale = digits == null ? 0 : Integer.parseInt(digits[1]);
  }

  Object of(BigDecimal value) {
    if (precision == 0) {
      return value.toBigInteger().bitLength() > 63 ? NOT : (Object) Long.valueOf(value.longValue());
    }
    BigDecimal rounded = value.setScale(scale, RoundingMode.HALF_UP);
    return rounded.precision() > precision ? NOT : rounded;
  }
}
