"""ksqlDB's functions, as Spark's expressions. Where the two differ, the result is the one that ksqlDB documents.

A template has `{0}`, `{1}`, ... for the arguments, `{all}` for all of them, and `{rest}` for all but the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.pipelines.fronts.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    SqlType,
    array_of,
    common_type,
    map_of,
    wider,
)

Kinds = Sequence[SqlType]
Result = SqlType | Callable[[Kinds], SqlType]


@dataclass(frozen=True, slots=True)
class Function:
    """A function. variants: by number of arguments, templates; -1: of any number. doc: what it does. makes_rows: whether
    each element of the array that it makes becomes a row. of_tables: whether, of many rows, one can be taken away again.
    takes: the types of its arguments, if it insists on them."""

    name: str
    variants: Mapping[int, str]
    result: Result
    doc: str
    aggregate: bool = False
    makes_rows: bool = False
    of_tables: bool = False
    takes: tuple[SqlType, ...] = ()

    def misfit(self, kinds: Kinds) -> str | None:
        """What is wrong with arguments of these types."""
        for number, (kind, wanted) in enumerate(zip(kinds, self.takes, strict=False), 1):
            if kind != wanted and wider(kind, wanted) != wanted:
                return f"argument {number} of {self.name} is {kind}, not {wanted}: CAST it"
        return None

    def kind(self, kinds: Kinds) -> SqlType:
        """The type of its result."""
        return self.result if isinstance(self.result, SqlType) else self.result(kinds)

    def template(self, count: int) -> str | None:
        """The template for so many arguments; None if it does not take so many."""
        return self.variants.get(count, self.variants.get(-1))

    @property
    def counts(self) -> str:
        """The numbers of arguments that it takes, for messages."""
        return "any number of" if -1 in self.variants else " or ".join(map(str, sorted(self.variants)))


def _first(kinds: Kinds) -> SqlType:
    return kinds[0]


def _common(kinds: Kinds) -> SqlType:
    return common_type(list(kinds)) or kinds[0]


def _item(kinds: Kinds) -> SqlType:
    return kinds[0].items[0] if kinds[0].items else STRING


def _list(kinds: Kinds) -> SqlType:
    return array_of(kinds[0])


def _nested(kinds: Kinds) -> SqlType:
    return array_of(kinds[0]) if kinds[0].name == "ARRAY" else kinds[0]


def _sum(kinds: Kinds) -> SqlType:
    kind = kinds[0]
    return SqlType("DECIMAL", digits=(38, kind.digits[1])) if kind.name == "DECIMAL" else kind


def _rounded(kinds: Kinds) -> SqlType:
    return BIGINT if len(kinds) == 1 and kinds[0].name == "DOUBLE" else kinds[0]


def _entries(kinds: Kinds) -> SqlType:
    return array_of(SqlType("STRUCT", kinds[0].items, ("K", "V")))


PLACE_IN_LIST: Final = "cast(coalesce(array_position(array({rest}), {0}), 0) as int)"
MASKED: Final = "mask({0}, 'X', 'x', 'n', '-')"
EARTH_KM: Final = 6371
DAY_MS: Final = 86_400_000
_ALL: dict[str, Function] = {}


def _add(
    doc: str, result: Result, *templates: str, name: str, aggregate: bool = False, makes_rows: bool = False
) -> None:
    """Adds a function; each template says by its placeholders how many arguments it is for."""
    variants = {}
    for template in templates:
        any_number = "{all}" in template or "{rest}" in template
        count = -1 if any_number else max((n + 1 for n in range(9) if f"{{{n}}}" in template), default=0)
        variants[count] = template
    for one in name.split():
        _ALL[one] = Function(one, variants, result, doc, aggregate, makes_rows)


def _numbers() -> None:
    _add("the absolute value", _first, "abs({0})", name="ABS")
    _add("rounded up", _first, "cast(ceil({0}) as {t0})", name="CEIL")
    _add("rounded down", _first, "cast(floor({0}) as {t0})", name="FLOOR")
    _add("rounded, halves up", _rounded, "cast(floor({0} + 0.5D) as bigint)", "round({0}, {1})", name="ROUND")
    _add(
        "cut off",
        _rounded,
        "cast({0} as bigint)",
        "cast(({0} * pow(10, {1})) as bigint) / pow(10, {1})",
        name="TRUNC",
    )
    for name in [
        "EXP",
        "SQRT",
        "CBRT",
        "SIN",
        "COS",
        "TAN",
        "ASIN",
        "ACOS",
        "ATAN",
        "SINH",
        "COSH",
        "TANH",
        "RADIANS",
        "DEGREES",
        "COT",
    ]:
        _add(f"the function {name.lower()}", DOUBLE, f"{name.lower()}({{0}})", name=name)
    _add("the natural logarithm", DOUBLE, "ln({0})", name="LN")
    _add(
        "a logarithm; of two arguments, the first is its base", DOUBLE, "ln({0})", "log({0}, {1})", name="LOG"
    )
    _add("a power", DOUBLE, "pow({0}, {1})", name="POWER POW")
    _add("the angle to a point", DOUBLE, "atan2({0}, {1})", name="ATAN2")
    _add("-1, 0 or 1", INTEGER, "cast(sign({0}) as int)", name="SIGN")
    _add("the number pi", DOUBLE, "pi()", name="PI")
    _add("a random number from 0 to 1", DOUBLE, "rand()", name="RANDOM")
    _add("the largest value", _common, "greatest({all})", name="GREATEST")
    _add("the smallest value", _common, "least({all})", name="LEAST")
    half = (
        "pow(sin(radians({2} - {0}) / 2), 2) + "
        "cos(radians({0})) * cos(radians({2})) * pow(sin(radians({3} - {1}) / 2), 2)"
    )
    km = f"(2 * {EARTH_KM} * asin(sqrt({half})))"
    miles = f"CASE WHEN upper({{4}}) LIKE 'MI%' THEN {km} * 0.621371 ELSE {km} END"
    _add("the distance of two places, in kilometres or 'MILES'", DOUBLE, km, miles, name="GEO_DISTANCE")


def _texts() -> None:
    _add("in capitals", STRING, "upper({0})", name="UCASE UPPER")
    _add("in small letters", STRING, "lower({0})", name="LCASE LOWER")
    _add("how many characters it has", INTEGER, "length({0})", name="LEN LENGTH")
    _add("without blanks at both ends", STRING, "trim({0})", name="TRIM")
    _add("each word with a capital", STRING, "initcap({0})", name="INITCAP")
    _add("one after the other; null counts as empty", STRING, "concat_ws('', {all})", name="CONCAT")
    _add("joined by the first argument", STRING, "concat_ws({all})", name="CONCAT_WS")
    _add(
        "a part, from a place that counts from 1",
        STRING,
        "substring({0}, {1})",
        "substring({0}, {1}, {2})",
        name="SUBSTRING SUBSTR",
    )
    _add("the first characters", STRING, "left({0}, {1})", name="LEFT")
    _add("the last characters", STRING, "right({0}, {1})", name="RIGHT")
    _add("filled up on the left", STRING, "lpad({0}, {1}, {2})", name="LPAD")
    _add("filled up on the right", STRING, "rpad({0}, {1}, {2})", name="RPAD")
    _add("one text replaced by another", STRING, "replace({0}, {1}, {2})", name="REPLACE")
    _add(
        "where a text begins, from 1; 0 if nowhere",
        INTEGER,
        "instr({0}, {1})",
        "locate({1}, {0}, {2})",
        name="INSTR",
    )
    _add(
        "the parts between separators",
        array_of(STRING),
        "split({0}, CASE WHEN {1} = '' THEN '' ELSE concat('\\\\Q', {1}, '\\\\E') END)",
        name="SPLIT",
    )
    _add(
        "pairs as a map",
        map_of(STRING, STRING),
        "str_to_map({0}, concat('\\\\Q', {1}, '\\\\E'), concat('\\\\Q', {2}, '\\\\E'))",
        name="SPLIT_TO_MAP",
    )
    _add(
        "the argument at a place",
        STRING,
        "CASE WHEN {0} > 0 THEN get(array({rest}), {0} - 1) END",
        name="ELT",
    )
    _add("the place of the first argument among the others", INTEGER, PLACE_IN_LIST, name="FIELD")
    code = "java_method('java.lang.Character', 'toString', {0})"
    _add("the character of a code", STRING, f"CASE WHEN {{0}} IS NOT NULL THEN {code} END", name="CHR")
    _add("a random identifier", STRING, "uuid()", name="UUID")
    _add("the MD5 hash", STRING, "md5({0})", name="MD5")


def _patterns() -> None:
    _add(
        "a part that matches a pattern",
        STRING,
        "CASE WHEN {1} RLIKE {0} THEN regexp_extract({1}, {0}, 0) END",
        "CASE WHEN {1} RLIKE {0} THEN regexp_extract({1}, {0}, {2}) END",
        name="REGEXP_EXTRACT",
    )
    _add(
        "all parts that match a pattern",
        array_of(STRING),
        "regexp_extract_all({1}, {0}, 0)",
        "regexp_extract_all({1}, {0}, {2})",
        name="REGEXP_EXTRACT_ALL",
    )
    _add("what matches a pattern, replaced", STRING, "regexp_replace({0}, {1}, {2})", name="REGEXP_REPLACE")
    _add(
        "the parts between matches of a pattern",
        array_of(STRING),
        "split({0}, {1})",
        name="REGEXP_SPLIT_TO_ARRAY",
    )


def _masks() -> None:
    _add("characters hidden: X, x, n and -", STRING, MASKED, name="MASK")
    part = "concat(mask(left({0}, {1}), 'X', 'x', 'n', '-'), substring({0}, {1} + 1))"
    _add("the first characters hidden", STRING, part, name="MASK_LEFT")
    part = "concat(left({0}, greatest(length({0}) - {1}, 0)), mask(right({0}, {1}), 'X', 'x', 'n', '-'))"
    _add("the last characters hidden", STRING, part, name="MASK_RIGHT")
    part = "concat(left({0}, {1}), mask(substring({0}, {1} + 1), 'X', 'x', 'n', '-'))"
    _add("all but the first characters hidden", STRING, part, name="MASK_KEEP_LEFT")
    part = "concat(mask(left({0}, greatest(length({0}) - {1}, 0)), 'X', 'x', 'n', '-'), right({0}, {1}))"
    _add("all but the last characters hidden", STRING, part, name="MASK_KEEP_RIGHT")


def _bytes() -> None:
    _add(
        "text as bytes: of 'hex', 'utf8', 'ascii' or 'base64'",
        BYTES,
        "CASE lower({1}) WHEN 'hex' THEN unhex({0}) WHEN 'base64' THEN unbase64({0}) ELSE encode({0}, 'UTF-8') END",
        name="TO_BYTES",
    )
    _add(
        "bytes as text: 'hex', 'utf8', 'ascii' or 'base64'",
        STRING,
        "CASE lower({1}) WHEN 'hex' THEN hex({0}) WHEN 'base64' THEN base64({0}) ELSE decode({0}, 'UTF-8') END",
        name="FROM_BYTES",
    )
    to_bytes, from_bytes = _ALL["TO_BYTES"].variants[2], _ALL["FROM_BYTES"].variants[2]
    _add(
        "text in another encoding",
        STRING,
        from_bytes.replace("{1}", "{2}").replace("{0}", f"({to_bytes})"),
        name="ENCODE",
    )
    whole = "cast(conv(hex({0}), 16, -10) as bigint)"
    turned = "array_join(reverse(regexp_extract_all(hex({0}), '..', 0)), '')"
    little = f"CASE WHEN upper({{1}}) LIKE 'LITTLE%' THEN unhex({turned}) ELSE {{0}} END"
    small = "cast((cast(conv(hex({0}), 16, 10) as bigint) ^ 2147483648L) - 2147483648L as int)"
    real = f"cast(java_method('java.lang.Double', 'longBitsToDouble', {whole}) as double)"
    for name, kind, text in (
        ("BIGINT_FROM_BYTES", BIGINT, whole),
        ("INT_FROM_BYTES", INTEGER, small),
        ("DOUBLE_FROM_BYTES", DOUBLE, real),
    ):
        _add("bytes as a number", kind, text, text.replace("{0}", f"({little})"), name=name)


def _urls() -> None:
    for name in ["HOST", "PATH", "PROTOCOL", "QUERY"]:
        _add(
            f"the {name.lower()} of a URL",
            STRING,
            f"try_parse_url({{0}}, '{name}')",
            name=f"URL_EXTRACT_{name}",
        )
    _add("the fragment of a URL", STRING, "try_parse_url({0}, 'REF')", name="URL_EXTRACT_FRAGMENT")
    _add("a parameter of a URL", STRING, "try_parse_url({0}, 'QUERY', {1})", name="URL_EXTRACT_PARAMETER")
    _add(
        "the port of a URL",
        INTEGER,
        "try_cast(regexp_extract({0}, '^[a-zA-Z][a-zA-Z0-9+.-]*://[^/]*:([0-9]+)', 1) as int)",
        name="URL_EXTRACT_PORT",
    )
    _add("as in a URL's parameters", STRING, "url_encode({0})", name="URL_ENCODE_PARAM")
    _add("what a URL's parameter says", STRING, "url_decode({0})", name="URL_DECODE_PARAM")


def _json() -> None:
    _add(
        "a field of a JSON text, by a path like '$.a.b[0]'",
        STRING,
        "get_json_object({0}, {1})",
        name="EXTRACTJSONFIELD",
    )
    _add("whether a text is JSON", BOOLEAN, "(try_parse_json({0}) IS NOT NULL)", name="IS_JSON_STRING")
    _add("how many elements a JSON array has", INTEGER, "json_array_length({0})", name="JSON_ARRAY_LENGTH")
    _add("the names in a JSON object", array_of(STRING), "json_object_keys({0})", name="JSON_KEYS")
    array = "to_json(array({0}), map('ignoreNullFields', 'false'))"
    _add("a value as JSON", STRING, f"substring({array}, 2, length({array}) - 2)", name="TO_JSON_STRING")
    _add(
        "whether a JSON array has an element",
        BOOLEAN,
        "coalesce(array_contains(from_json({0}, 'array<string>'), cast({1} as string)), false)",
        name="JSON_ARRAY_CONTAINS",
    )
    _add(
        "the elements of a JSON array, each as JSON",
        array_of(STRING),
        "from_json({0}, 'array<string>')",
        name="JSON_ITEMS",
    )
    members = "from_json({0}, 'map<string,variant>')"
    _add(
        "the names in a JSON object with their values as JSON",
        map_of(STRING, STRING),
        f"transform_values({members}, (k, v) -> to_json(v))",
        name="JSON_RECORDS",
    )
    merged = f"to_json(map_zip_with({members}, {members.replace('{0}', '{1}')}, (k, a, b) -> coalesce(b, a)))"
    joined = "to_json(concat(from_json({0}, 'array<variant>'), from_json({1}, 'array<variant>')))"
    _add(
        "two JSON objects, or two JSON arrays, as one",
        STRING,
        f"CASE WHEN left(trim({{0}}), 1) = '[' THEN {joined} ELSE {merged} END",
        name="JSON_CONCAT",
    )


def _arrays() -> None:
    number = "sequence(0, cast(pow(2, size({0})) as smallint) - 1)"  # an error for more than 14 elements
    chosen = "(i div cast(pow(2, size({0}) - 1 - j) as int)) % 2 = 1"
    _add(
        "a row for each set of elements of an array, the others null",
        _nested,
        f"array_distinct(transform({number}, i -> transform({{0}}, (x, j) -> CASE WHEN {chosen} THEN x END)))",
        name="CUBE_EXPLODE",
        makes_rows=True,
    )
    _add("how many elements it has", INTEGER, "array_size({0})", name="ARRAY_LENGTH")
    _add("whether an element is in it", BOOLEAN, "array_contains({0}, {1})", name="ARRAY_CONTAINS")
    _add("each element once", _first, "array_distinct({0})", name="ARRAY_DISTINCT")
    _add(
        "the elements of the first without those of the second",
        _first,
        "array_except({0}, {1})",
        name="ARRAY_EXCEPT",
    )
    _add("the elements that are in both", _first, "array_intersect({0}, {1})", name="ARRAY_INTERSECT")
    _add(
        "the elements that are in one of them, each once", _first, "array_union({0}, {1})", name="ARRAY_UNION"
    )
    _add("one after the other", _first, "concat({0}, {1})", name="ARRAY_CONCAT")
    _add(
        "as text, with separators",
        STRING,
        "array_join({0}, ',', 'null')",
        "array_join({0}, {1}, 'null')",
        name="ARRAY_JOIN",
    )
    _add("the largest element", _item, "array_max({0})", name="ARRAY_MAX")
    _add("the smallest element", _item, "array_min({0})", name="ARRAY_MIN")
    _add("without an element", _first, "array_remove({0}, {1})", name="ARRAY_REMOVE")
    _add(
        "in order: 'ASC' or 'DESC'",
        _first,
        "array_sort({0})",
        "CASE WHEN upper({1}) LIKE 'DESC%' THEN sort_array({0}, false) ELSE array_sort({0}) END",
        name="ARRAY_SORT",
    )
    _add(
        "elements from one place to another, from 1",
        _first,
        "slice({0}, {1}, greatest({2} - {1} + 1, 0))",
        name="SLICE",
    )
    _add(
        "numbers from one to another",
        _list,
        "sequence({0}, {1})",
        "sequence({0}, {1}, {2})",
        name="GENERATE_SERIES",
    )


def _maps() -> None:
    _add(
        "a map of two arrays",
        lambda kinds: map_of(kinds[0].items[0], kinds[1].items[0]),
        "map_from_arrays({0}, {1})",
        name="AS_MAP",
    )
    _add("the keys of a map", lambda kinds: array_of(kinds[0].items[0]), "map_keys({0})", name="MAP_KEYS")
    _add(
        "the values of a map", lambda kinds: array_of(kinds[0].items[1]), "map_values({0})", name="MAP_VALUES"
    )
    _add(
        "both maps; the second wins",
        _first,
        "map_zip_with({0}, {1}, (k, a, b) -> coalesce(b, a))",
        name="MAP_UNION",
    )
    entries = "transform(map_entries({0}), e -> named_struct('K', e.key, 'V', e.value))"
    _add(
        "keys and values as structs; sorted if the second argument is true",
        _entries,
        f"CASE WHEN {{1}} THEN array_sort({entries}) ELSE {entries} END",
        name="ENTRIES",
    )


def _choices() -> None:
    _add("a column of the key as one of the value", _first, "{0}", name="AS_VALUE")
    _add("the first value that is not null", _common, "coalesce({all})", name="COALESCE")
    _add("the second value if the first is null", _common, "coalesce({0}, {1})", name="IFNULL")
    _add("null if both are equal", _first, "nullif({0}, {1})", name="NULLIF")


def _times() -> None:
    text = "try_to_timestamp({0}, {1})"
    _add(
        "the time as milliseconds",
        BIGINT,
        "unix_millis(current_timestamp())",
        "unix_millis({0})",
        name="UNIX_TIMESTAMP",
    )
    _add(
        "the day as a number, from 1970",
        INTEGER,
        "unix_date(current_date())",
        "unix_date({0})",
        name="UNIX_DATE",
    )
    _add("milliseconds as a timestamp", TIMESTAMP, "timestamp_millis({0})", name="FROM_UNIXTIME")
    _add("days since 1970 as a date", DATE, "date_from_unix_date({0})", name="FROM_DAYS")
    _add(
        "a timestamp as text",
        STRING,
        "date_format({0}, {1})",
        "date_format(from_utc_timestamp({0}, {2}), {1})",
        name="FORMAT_TIMESTAMP",
    )
    _add(
        "text as a timestamp", TIMESTAMP, text, "to_utc_timestamp(" + text + ", {2})", name="PARSE_TIMESTAMP"
    )
    _add("a date as text", STRING, "date_format({0}, {1})", name="FORMAT_DATE")
    _add("text as a date", DATE, f"cast({text} as date)", name="PARSE_DATE")
    _add(
        "milliseconds as text",
        STRING,
        "date_format(timestamp_millis({0}), {1})",
        "date_format(from_utc_timestamp(timestamp_millis({0}), {2}), {1})",
        name="TIMESTAMPTOSTRING",
    )
    _add(
        "text as milliseconds",
        BIGINT,
        f"unix_millis({text})",
        "unix_millis(to_utc_timestamp(" + text + ", {2}))",
        name="STRINGTOTIMESTAMP",
    )
    _add("days since 1970 as text", STRING, "date_format(date_from_unix_date({0}), {1})", name="DATETOSTRING")
    _add("text as days since 1970", INTEGER, f"unix_date(cast({text} as date))", name="STRINGTODATE")
    _add("the same instant in another zone", TIMESTAMP, "convert_timezone({1}, {2}, {0})", name="CONVERT_TZ")
    _add("a time later", TIMESTAMP, "timestampadd({u0}, {1}, {2})", name="TIMESTAMPADD")
    _add("a time earlier", TIMESTAMP, "timestampadd({u0}, -({1}), {2})", name="TIMESTAMPSUB")
    _add("a time of day as text", STRING, "date_format(timestamp_millis({0}), {1})", name="FORMAT_TIME")
    _add("text as a time of day", TIME, f"cast(unix_millis({text}) % {DAY_MS} as int)", name="PARSE_TIME")
    moved = f"(unix_millis(timestampadd({{u0}}, {{1}}, timestamp_millis({{2}}))) % {DAY_MS})"
    moved = f"cast(({moved} + {DAY_MS}) % {DAY_MS} as int)"
    _add("a time of day later; after midnight from 0 on", TIME, moved, name="TIMEADD")
    _add("a time of day earlier", TIME, moved.replace("{1}", "-({1})"), name="TIMESUB")
    _add("a day later", DATE, "cast(timestampadd({u0}, {1}, {2}) as date)", name="DATEADD")
    _add("a day earlier", DATE, "cast(timestampadd({u0}, -({1}), {2}) as date)", name="DATESUB")


def _aggregates() -> None:
    def add(doc: str, result: Result, *templates: str, name: str) -> None:
        _add(doc, result, *templates, name=name, aggregate=True)

    add("how many rows, or values that are not null", BIGINT, "count({0})", name="COUNT")
    add("about how many different values", BIGINT, "approx_count_distinct({0})", name="COUNT_DISTINCT")
    add("the sum", _sum, "cast(coalesce(sum({0}), 0) as {r})", name="SUM")
    add("the average", DOUBLE, "cast(avg({0}) as double)", name="AVG")
    add("the smallest value", _first, "min({0})", name="MIN")
    add("the largest value", _first, "max({0})", name="MAX")
    add("all values, at most 1,000", _list, "slice(collect_list({0}), 1, 1000)", name="COLLECT_LIST")
    add("the different values, at most 1,000", _list, "slice(collect_set({0}), 1, 1000)", name="COLLECT_SET")
    add(
        "the first value by offset that is not null",
        _first,
        "min_by({0}, {offset}) FILTER (WHERE {0} IS NOT NULL)",
        name="EARLIEST_BY_OFFSET",
    )
    add(
        "the last value by offset that is not null",
        _first,
        "max_by({0}, {offset}) FILTER (WHERE {0} IS NOT NULL)",
        name="LATEST_BY_OFFSET",
    )
    add("the largest values", _list, "slice(sort_array(collect_list({0}), false), 1, {1})", name="TOPK")
    add(
        "the largest different values",
        _list,
        "slice(sort_array(collect_set({0}), false), 1, {1})",
        name="TOPKDISTINCT",
    )
    counted = "map_concat(map_filter(m, (k, c) -> k <> v), map(v, coalesce(try_element_at(m, v), 0L) + 1L))"
    empty = "cast(map() as map<string,bigint>)"
    add(
        "how often each value comes",
        map_of(STRING, BIGINT),
        f"aggregate(transform(collect_list({{0}}), x -> cast(x as string)), {empty}, (m, v) -> {counted})",
        name="HISTOGRAM",
    )
    add(
        "the sum of the elements of arrays",
        _item,
        "cast(coalesce(sum(aggregate({0}, cast(0 as {r}), (s, x) -> s + coalesce(x, cast(0 as {r})))), 0) as {r})",
        name="SUM_LIST",
    )
    add("the deviation of a sample", DOUBLE, "stddev_samp({0})", name="STDDEV_SAMP STDDEV_SAMPLE")
    add("the correlation of two columns", DOUBLE, "corr({0}, {1})", name="CORRELATION")


_PARTS = (
    _numbers,
    _texts,
    _patterns,
    _masks,
    _bytes,
    _urls,
    _json,
    _arrays,
    _maps,
    _choices,
    _times,
    _aggregates,
)
for _part in _PARTS:
    _part()

KNOWN_FUNCTIONS: Final = dict(sorted(_ALL.items()))
FUNCTIONS: Final[Mapping[str, Function]] = KNOWN_FUNCTIONS


def add_function(function: Function) -> None:
    """Adds a function of the user's."""
    KNOWN_FUNCTIONS[function.name] = function


UNIT_ARGUMENTS: Final = frozenset(
    {"TIMESTAMPADD", "TIMESTAMPSUB", "DATEADD", "DATESUB", "TIMEADD", "TIMESUB"}
)
"""Functions whose first argument is a unit of time, not a value."""
