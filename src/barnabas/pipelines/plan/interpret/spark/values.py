"""Values of Spark's types in Python, and what their conversions are.

int (INT and BIGINT), float (DOUBLE), Decimal, bool, str, bytes, datetime in UTC (TIMESTAMP), date, list (ARRAY), dict (MAP
and STRUCT); None is null.
"""

from __future__ import annotations

import base64
import datetime
import json
import math
from collections.abc import Callable, Mapping
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, Final

Value = Any
EXACT: Final = Context(prec=60)
EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
DAY_ONE: Final = datetime.date(1970, 1, 1)
WIDTHS: Final = {"int": 31, "integer": 31, "bigint": 63, "long": 63, "smallint": 15, "tinyint": 7}


class NotInterpreted(Exception):
    """The plan has a part that only Spark carries out."""


class Failed(Exception):
    """An expression or a step cannot process a row."""


class Misfit(ValueError):
    """A value that cannot be converted."""


def double_text(value: float) -> str:
    """As Java writes it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    if 1e-3 <= abs(value) < 1e7:
        return repr(value) if "e" not in repr(value) else format(Decimal(repr(value)), "f")
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    rest = "".join(map(str, digits[1:])).rstrip("0") or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}E{exponent + len(digits) - 1}"


def time_text(value: datetime.datetime) -> str:
    """A timestamp as Spark writes it."""
    text = value.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")
    return text + (f".{value.microsecond:06}".rstrip("0") if value.microsecond else "")


def as_text(value: Value) -> str:
    """A value as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime.datetime):
        return time_text(value)
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, int | str):
        return str(value)
    raise NotInterpreted(f"text of {type(value).__name__}")


def as_bool(value: Value) -> bool:
    """Raises Misfit."""
    if isinstance(value, str):
        truth = {"t": True, "true": True, "y": True, "yes": True, "1": True}.get(value.strip().lower())
        if truth is None and value.strip().lower() not in ("f", "false", "n", "no", "0"):
            raise Misfit(value)
        return bool(truth)
    return bool(value)


def as_whole(value: Value, bits: int) -> int:
    """Raises Misfit."""
    if isinstance(value, str):
        number = _decimal_of(value)
        whole = int(number.to_integral_value(ROUND_DOWN))
    elif isinstance(value, datetime.datetime):
        whole = math.floor((value - EPOCH).total_seconds())
    elif isinstance(value, float) and not math.isfinite(value):
        raise Misfit(str(value))
    else:
        whole = int(value)
    if not -(1 << bits) <= whole < 1 << bits:
        raise Misfit(str(value))
    return whole


def _decimal_of(text: str) -> Decimal:
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        raise Misfit(text) from None
    if not number.is_finite():
        raise Misfit(text)
    return number


def as_double(value: Value) -> float:
    """Raises Misfit."""
    try:
        return float(value.strip() if isinstance(value, str) else value)
    except ValueError:
        raise Misfit(str(value)) from None


def as_decimal(value: Value, precision: int, scale: int) -> Decimal:
    """Raises Misfit if it has too many digits."""
    if isinstance(value, float):
        value = double_text(value)
    number = _decimal_of(value) if isinstance(value, str) else Decimal(value)
    rounded = number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, EXACT)
    if len(rounded.as_tuple().digits) + min(int(rounded.as_tuple().exponent) + scale, 0) > precision:
        raise Misfit(str(value))
    return rounded


def as_time(value: Value) -> datetime.datetime:
    """Raises Misfit."""
    if isinstance(value, datetime.datetime):
        return value
    if isinstance(value, datetime.date):
        return datetime.datetime.combine(value, datetime.time(), datetime.UTC)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return EPOCH + datetime.timedelta(seconds=value)
    try:
        time = datetime.datetime.fromisoformat(str(value).strip())
    except ValueError:
        raise Misfit(str(value)) from None
    return time.astimezone(datetime.UTC) if time.tzinfo is not None else time.replace(tzinfo=datetime.UTC)


def as_date(value: Value) -> datetime.date:
    """Raises Misfit."""
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value
    return as_time(value).date()


def converter(kind: str) -> Callable[[Value], Value]:
    """A function that makes values of a type, by Spark's name in small letters; it raises Misfit. Raises NotInterpreted."""
    kind = kind.strip()
    if kind in WIDTHS:
        bits = WIDTHS[kind]
        return lambda value: as_whole(value, bits)
    if kind.startswith("decimal"):
        digits = [int(part) for part in kind[8:-1].split(",")] if "(" in kind else [10, 0]
        return lambda value: as_decimal(value, digits[0], digits[1] if len(digits) > 1 else 0)
    convert = PLAIN.get(kind)
    if convert is not None:
        return convert
    if "<" in kind:
        return lambda value: value
    raise NotInterpreted(f"the type {kind}")


PLAIN: Final[Mapping[str, Callable[[Value], Value]]] = {
    "string": as_text,
    "boolean": as_bool,
    "double": as_double,
    "float": as_double,
    "timestamp": as_time,
    "date": as_date,
    "binary": lambda value: value if isinstance(value, bytes) else as_text(value).encode(),
}

# --- JSON ---------------------------------------------------------------------------------------------


def parts_of(kind: str) -> list[str]:
    """What stands between the outermost angle brackets of a type, divided at its commas."""
    inner, depth, parts, quoted = kind[kind.index("<") + 1 : -1], 0, [""], False
    for char in inner:
        quoted ^= char == "`"
        depth += (char in "<(") - (char in ">)") if not quoted else 0
        if char == "," and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def field_of(text: str) -> tuple[str, str]:
    """Name and type of a field of a struct, which are written like `name`:type or name type."""
    if text.startswith("`"):
        end = text.index("`", 1)
        return text[1:end], text[end + 1 :].lstrip(": ").strip()
    name, _, kind = text.partition(":") if ":" in text.partition(" ")[0] else text.partition(" ")
    return name.strip(), kind.strip()


def from_json(value: Any, kind: str) -> Value:
    """A value of JSON as a type; null if it does not fit, as Spark's from_json."""
    if value is None:
        return None
    low = kind.lower()
    if low.startswith("array<"):
        item = parts_of(kind)[0]
        return [from_json(one, item) for one in value] if isinstance(value, list) else None
    if low.startswith("map<"):
        item = parts_of(kind)[1]
        return (
            {name: from_json(one, item) for name, one in value.items()} if isinstance(value, dict) else None
        )
    if low.startswith("struct<"):
        if not isinstance(value, dict):
            return None
        fields = map(field_of, parts_of(kind)) if kind[7:-1].strip() else ()
        return {name: from_json(value.get(name), inner) for name, inner in fields}
    return _plain_json(value, low)


def _plain_json(value: Any, kind: str) -> Value:
    if kind == "variant":
        return value
    if kind == "string":
        return value if isinstance(value, str) else json_text(value)
    if kind == "binary":
        try:
            return base64.b64decode(value, validate=True) if isinstance(value, str) else None
        except ValueError:
            return None
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if isinstance(value, bool | list | dict):
        return None
    if kind in WIDTHS and not isinstance(value, int):
        return None
    if kind == "double" and isinstance(value, str) and value not in ("NaN", "Infinity", "-Infinity"):
        return None
    try:
        return converter(kind)(value)
    except Misfit:
        return None


def json_text(value: Value, nulls: bool = True) -> str:
    """A value as JSON, as Spark writes it. nulls: whether fields without a value are written."""
    return "".join(_json_parts(value, nulls))


def _json_parts(value: Value, nulls: bool) -> list[str]:
    if value is None:
        return ["null"]
    if isinstance(value, dict):
        shown = [(name, one) for name, one in value.items() if nulls or one is not None]
        members = [
            f"{json.dumps(as_text(name), ensure_ascii=False)}:{json_text(one, nulls)}" for name, one in shown
        ]
        return ["{", ",".join(members), "}"]
    if isinstance(value, list):
        return ["[", ",".join(json_text(one, nulls) for one in value), "]"]
    if isinstance(value, bytes):
        return [json.dumps(base64.b64encode(value).decode())]
    if isinstance(value, datetime.datetime):
        millis = f"{value.microsecond // 1000:03}"
        return [json.dumps(value.astimezone(datetime.UTC).strftime(f"%Y-%m-%dT%H:%M:%S.{millis}Z"))]
    if isinstance(value, str):
        return [json.dumps(value, ensure_ascii=False)]
    if isinstance(value, float) and not math.isfinite(value):
        return [json.dumps(double_text(value))]
    if isinstance(value, datetime.date):
        return [json.dumps(value.isoformat())]
    return [as_text(value)]
