"""Spark's functions of numbers, texts, bytes, times and JSON. Those in FUNCTIONS are null if an argument is null; those in
WITH_NULLS take a list of arguments, nulls among them."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import math
import re
import uuid
from collections.abc import Callable, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from typing import Any, Final

from barnabas.pipelines.plan.interpret.spark.collections import PLAIN_COLLECTIONS, WHOLE_COLLECTIONS
from barnabas.pipelines.plan.interpret.spark.numbers import java_method
from barnabas.pipelines.plan.interpret.spark.times import TIMES
from barnabas.pipelines.plan.interpret.spark.values import (
    EXACT,
    Failed,
    Misfit,
    NotInterpreted,
    Value,
    as_double,
    as_text,
    as_whole,
    from_json,
    json_text,
    parts_of,
)

# --- numbers ------------------------------------------------------------------------------------------


def _rounded(value: Value, places: int = 0) -> Value:
    """Halves go away from zero."""
    if isinstance(value, int):
        if places >= 0:
            return value
        return int(Decimal(value).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, EXACT))
    if isinstance(value, float):
        if not math.isfinite(value):
            return value
        return float(Decimal(repr(value)).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, EXACT))
    return value.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, EXACT)


def _whole(rounding: str) -> Callable[[Value], Value]:
    return lambda value: value if isinstance(value, int) else int(Decimal(value).to_integral_value(rounding))


def _real(function: Callable[[float], float]) -> Callable[[Value], Value]:
    """Where a function is not defined, it is NaN, as in Java."""

    def work(value: Value) -> Value:
        try:
            return function(float(value))
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return work


def _log(value: Value) -> Value:
    """Null for what has no logarithm."""
    return math.log(value) if value > 0 else None


def _log_of(base: Value, value: Value) -> Value:
    return math.log(value) / math.log(base) if value > 0 and base > 0 else None


def _power(one: Value, other: Value) -> float:
    try:
        return float(math.pow(one, other))
    except OverflowError:
        return math.inf
    except ValueError:
        return math.nan


def _cot(value: float) -> float:
    return math.inf if value == 0 else 1 / math.tan(value)


def _conv(number: str, base: int, to: int) -> Value:
    """A number with another base; with a base below zero it has a sign, and is of 64 bits."""
    digits = re.match(r"-?[0-9a-zA-Z]+", number.strip())
    if digits is None:
        return None
    value = int(digits[0], base)
    if to < 0 and value >= 1 << 63:
        value -= 1 << 64
    if abs(to) == 10:
        return str(value)
    if abs(to) == 16:
        return format(value % (1 << 64), "X")
    raise NotInterpreted(f"conv to base {to}")


def _hex(value: Value) -> str:
    if isinstance(value, int):
        return format(value % (1 << 64), "X")
    return (value if isinstance(value, bytes) else value.encode()).hex().upper()


def _unhex(text: str) -> Value:
    try:
        return bytes.fromhex(text if len(text) % 2 == 0 else "0" + text)
    except ValueError:
        return None


# --- texts --------------------------------------------------------------------------------------------


def _substring(text: Value, start: int, length: int | None = None) -> Value:
    """Counts from 1, or from the end below zero."""
    begin = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    end = len(text) if length is None else begin + length
    return text[max(begin, 0) : max(end, 0)]


def _padded(left: bool) -> Callable[..., Value]:
    def work(text: Value, length: int, pad: Value = " ") -> Value:
        if length <= len(text) or not pad:
            return text[: max(length, 0)]
        missing = length - len(text)
        filling = (pad * (missing // len(pad) + 1))[:missing]
        return filling + text if left else text + filling

    return work


def _mask(text: str, upper: str, lower: str, digit: str, other: str) -> str:
    def one(char: str) -> str:
        return upper if char.isupper() else lower if char.islower() else digit if char.isdigit() else other

    return "".join(map(one, text))


def _pattern(text: str) -> re.Pattern[str]:
    """A regular expression of Java, as far as Python's are the same; \\Q...\\E is a text."""
    quoted = re.sub(r"\\Q(.*?)(?:\\E|$)", lambda match: re.escape(match[1]), text, flags=re.DOTALL)
    try:
        return re.compile(quoted)
    except re.error:
        raise Failed(f"{text!r} is no regular expression") from None


def _extract(text: str, pattern: str, group: int = 1) -> str:
    match = _pattern(pattern).search(text)
    return "" if match is None else _group(match, group)


def _group(match: re.Match[str], number: int) -> str:
    if not 0 <= number <= (match.re.groups or 0):
        raise Failed(f"the pattern has no group {number}")
    return match[number] or ""


def _extract_all(text: str, pattern: str, group: int = 1) -> list[str]:
    return [_group(match, group) for match in _pattern(pattern).finditer(text)]


def _replaced(text: str, pattern: str, by: str) -> str:
    return _pattern(pattern).sub(re.sub(r"\$(\d)", r"\\\1", by.replace("\\", "\\\\")), text)


def _split(text: str, pattern: str, limit: int = -1) -> list[str]:
    if not pattern:
        return list(text)
    return _pattern(pattern).split(text)


def _split_to_map(text: str, pairs: str, equals: str) -> Value:
    by_name: dict[str, Value] = {}
    for part in _pattern(pairs).split(text):
        name, *rest = _pattern(equals).split(part, 1)
        by_name[name] = rest[0] if rest else None
    return by_name


def _initcap(text: str) -> str:
    return " ".join(word[:1].upper() + word[1:].lower() for word in text.split(" "))


def _locate(part: str, text: str, start: int = 1) -> int:
    return text.find(part, start - 1) + 1 if start >= 1 else 0


def _decoded(value: bytes, charset: str) -> str:
    return value.decode("ascii" if charset.lower() == "us-ascii" else charset, "replace")


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        raise Misfit(text) from None


def _md5(value: Value) -> str:
    raw = value if isinstance(value, bytes) else value.encode()
    return hashlib.md5(raw, usedforsecurity=False).hexdigest()


def _concat(*values: Value) -> Value:
    if isinstance(values[0], list):
        return [one for value in values for one in value]
    if all(isinstance(value, bytes) for value in values):
        return b"".join(values)
    return "".join(as_text(value) for value in values)


URL: Final = re.compile(
    r"(?:(?P<PROTOCOL>[A-Za-z][A-Za-z0-9+.-]*):)?(?://(?:[^/?#@\s]*@)?(?P<HOST>[^/?#:\s]*)(?::\d*)?)?"
    r"(?P<PATH>[^?#\s]*)(?:\?(?P<QUERY>[^#\s]*))?(?:#(?P<REF>\S*))?"
)
UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789*-._")


def _url(text: str, part: str, key: str | None = None) -> Value:
    match = URL.fullmatch(text)
    if match is None:
        return None
    if part == "QUERY" and key is not None:
        named = re.search(f"(?:^|&){re.escape(key)}=([^&]*)", match["QUERY"] or "")
        return None if named is None else named[1]
    return match[part]


def _url_encoded(text: str) -> str:
    def one(char: str) -> str:
        if char in UNRESERVED:
            return char
        return "+" if char == " " else "".join(f"%{byte:02X}" for byte in char.encode())

    return "".join(map(one, text))


def _url_decoded(text: str) -> str:
    raw = re.sub(
        rb"%([0-9A-Fa-f]{2})", lambda match: bytes.fromhex(match[1].decode()), text.replace("+", " ").encode()
    )
    return raw.decode("utf-8", "replace")


# --- JSON ---------------------------------------------------------------------------------------------


def _parsed(text: str) -> Any:
    return json.loads(text, parse_float=Decimal)


def _json_path(text: str, path: str) -> Value:
    try:
        value = _parsed(text)
    except ValueError:
        return None
    if not path.startswith("$"):
        return None
    for name, quoted, index in re.findall(r"\.([^.\[\]]+)|\['([^']*)'\]|\[(\d+)\]", path[1:]):
        if index:
            value = value[int(index)] if isinstance(value, list) and int(index) < len(value) else None
        else:
            value = value.get(name or quoted) if isinstance(value, dict) else None
        if value is None:
            return None
    return value if isinstance(value, str) else json_text(value)


def _json_array_length(text: str) -> Value:
    try:
        document = _parsed(text)
    except ValueError:
        return None
    return len(document) if isinstance(document, list) else None


def _json_keys(text: str) -> Value:
    try:
        document = _parsed(text)
    except ValueError:
        return None
    return list(document) if isinstance(document, dict) else None


def _try_parse_json(text: str) -> Value:
    try:
        document = _parsed(text)
    except ValueError:
        return None
    return "null" if document is None else document


def _from_json(text: str, kind: str) -> Value:
    try:
        document = _parsed(text)
    except ValueError:
        return None
    if "<" not in kind.split(" ")[0]:
        kind = f"struct<{kind}>"
    return from_json(document, kind)


def _from_csv(text: str, kinds: str) -> Value:
    import csv

    cells = next(csv.reader([text]), [])
    names = [part.split()[0] for part in parts_of(f"struct<{kinds}>")]
    return {name: cells[at] if at < len(cells) else None for at, name in enumerate(names)}


def to_csv(row: Mapping[str, Value], options: Mapping[str, str] | None = None) -> str:
    """A row as a line: null is nothing, an empty text is "" in quotes, and so is what holds a separator."""
    separator = (options or {}).get("sep", ",")

    def cell(value: Value) -> str:
        if value is None:
            return ""
        text = base64.b64encode(value).decode() if isinstance(value, bytes) else as_text(value)
        if text == "":
            return '""'
        if separator in text or "\n" in text or "\r" in text or text.startswith('"') or '"' in text:
            return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        return text

    return separator.join(map(cell, row.values()))


# --- with nulls ---------------------------------------------------------------------------------------


def _first_known(values: list[Value]) -> Value:
    return next((value for value in values if value is not None), None)


def _extreme(choose: Callable[..., Value]) -> Callable[[list[Value]], Value]:
    def work(values: list[Value]) -> Value:
        known = [value for value in values if value is not None]
        return choose(known, key=lambda v: float(v) if isinstance(v, Decimal) else v) if known else None

    return work


def _concat_ws(values: list[Value]) -> Value:
    if values[0] is None:
        return None
    parts: list[Value] = []
    for value in values[1:]:
        parts += value if isinstance(value, list) else [value]
    return str(values[0]).join(as_text(part) for part in parts if part is not None)


def _named_struct(values: list[Value]) -> Value:
    return dict(zip(values[::2], values[1::2], strict=True))


def _elt(values: list[Value]) -> Value:
    at = values[0]
    return values[at] if at is not None and 1 <= at < len(values) else None


def _field(values: list[Value]) -> Value:
    wanted = values[0]
    return 0 if wanted is None or wanted not in values[1:] else values[1:].index(wanted) + 1


def _nullif(values: list[Value]) -> Value:
    one, other = values
    return None if one is not None and one == other else one


def _to_json(values: list[Value]) -> Value:
    options = values[1] if len(values) > 1 else {}
    nulls = (options or {}).get("ignoreNullFields") == "false"
    return None if values[0] is None else json_text(values[0], nulls)


def _raise_error(text: Value) -> Value:
    raise Failed(str(text))


_WITH_NULLS: Final[dict[str, Callable[[list[Value]], Value]]] = {
    **WHOLE_COLLECTIONS,
    "coalesce": _first_known,
    "ifnull": _first_known,
    "nvl": _first_known,
    "if": lambda values: values[1] if values[0] is True else values[2],
    "nullif": _nullif,
    "greatest": _extreme(max),
    "least": _extreme(min),
    "concat_ws": _concat_ws,
    "named_struct": _named_struct,
    "elt": _elt,
    "field": _field,
    "to_json": _to_json,
    "uuid": lambda values: str(uuid.uuid4()),
    "rand": lambda values: uuid.uuid4().int / (1 << 128),
    "pi": lambda values: math.pi,
    "current_timestamp": lambda values: datetime.datetime.now(datetime.UTC),
    "current_date": lambda values: datetime.datetime.now(datetime.UTC).date(),
    "isnull": lambda values: values[0] is None,
}
WITH_NULLS: Final[Mapping[str, Callable[[list[Value]], Value]]] = _WITH_NULLS


def add_own(name: str, function: Callable[[list[Value]], Value]) -> None:
    """Adds a function of the user's, which gets its arguments as a list."""
    _WITH_NULLS[name] = function


_REAL: Final = {
    name: _real(getattr(math, name))
    for name in (
        "exp",
        "sqrt",
        "cbrt",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "radians",
        "degrees",
    )
}
FUNCTIONS: Final[Mapping[str, Callable[..., Value]]] = {
    "raise_error": _raise_error,
    **PLAIN_COLLECTIONS,
    **TIMES,
    **_REAL,
    "cot": _cot,
    "ln": _log,
    "log": _log_of,
    "pow": _power,
    "power": _power,
    "atan2": math.atan2,
    "sign": lambda value: float((value > 0) - (value < 0)),
    "abs": abs,
    "round": _rounded,
    "ceil": _whole(ROUND_CEILING),
    "floor": _whole(ROUND_FLOOR),
    "conv": _conv,
    "hex": _hex,
    "unhex": _unhex,
    "java_method": java_method,
    "upper": lambda text: as_text(text).upper(),
    "lower": lambda text: as_text(text).lower(),
    "length": lambda value: len(value if isinstance(value, bytes | str) else as_text(value)),
    "trim": lambda text: as_text(text).strip(" "),
    "initcap": _initcap,
    "concat": _concat,
    "substring": _substring,
    "left": lambda text, count: text[: max(count, 0)],
    "right": lambda text, count: text[-count:] if count > 0 else "",
    "lpad": _padded(left=True),
    "rpad": _padded(left=False),
    "replace": lambda text, old, new: text.replace(old, new) if old else text,
    "instr": lambda text, part: text.find(part) + 1,
    "locate": _locate,
    "split": _split,
    "str_to_map": _split_to_map,
    "char": lambda code: chr(code % 256) if code >= 0 else "",
    "md5": _md5,
    "regexp_extract": _extract,
    "regexp_extract_all": _extract_all,
    "regexp_replace": _replaced,
    "mask": _mask,
    "encode": lambda text, charset: text.encode(charset, "replace"),
    "decode": _decoded,
    "base64": lambda value: base64.b64encode(value if isinstance(value, bytes) else value.encode()).decode(),
    "unbase64": _unbase64,
    "try_parse_url": _url,
    "url_encode": _url_encoded,
    "url_decode": _url_decoded,
    "get_json_object": _json_path,
    "json_array_length": _json_array_length,
    "json_object_keys": _json_keys,
    "try_parse_json": _try_parse_json,
    "from_json": _from_json,
    "from_csv": _from_csv,
    "to_csv": to_csv,
    "string": as_text,
    "int": lambda value: as_whole(value, 31),
    "bigint": lambda value: as_whole(value, 63),
    "double": as_double,
}
