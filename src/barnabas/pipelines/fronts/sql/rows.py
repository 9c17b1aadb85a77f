"""How rows of a stream or table are read from records, and written as records: steps and expressions of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from barnabas.pipelines.entries.document import duration_seconds
from barnabas.pipelines.formats.base import VALUE
from barnabas.pipelines.fronts.sql.catalog import BARE, ENCODED, ROWKEY, Column, Relation
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.expressions import quoted, text_literal
from barnabas.pipelines.fronts.sql.schemas import in_capitals, schema_text
from barnabas.pipelines.fronts.sql.statements import Window
from barnabas.pipelines.fronts.sql.types import SqlType

Step = dict[str, Any]
TIME: Final = "event_time"
"""The field with a row's time, as a timestamp. Columns have names in capitals."""
WINDOW_START: Final = "WINDOWSTART"
WINDOW_END: Final = "WINDOWEND"
WINDOW_BYTES: Final = {False: 8, True: 16}
"""How many bytes of a key are its window, by whether that is a session."""
KEY_FIELD: Final = "key "
"""What the fields of a key with a schema begin with, until they are columns."""


# --- reading ------------------------------------------------------------------------------------------


def reading(relation: Relation, pseudo: set[str]) -> list[Step]:
    """The steps from a record to the columns of a row. pseudo: those of ROWTIME, ROWPARTITION, ROWOFFSET and TIME that are
    used."""
    if relation.formats.value in ENCODED:
        steps = _schema_steps(relation) + _key_steps(relation)
    else:
        steps = _key_steps(relation) + _value_steps(relation)
    if relation.keys and relation.formats.key in ENCODED:
        steps += _key_schema_steps(relation)
    fields: dict[str, str] = {column.name: _header(column.header) for column in relation.headers}
    for bound in (WINDOW_START, WINDOW_END):
        if bound in pseudo:
            fields[bound] = window_bound(relation, bound)
    if ROWKEY in pseudo:
        fields[ROWKEY] = "cast(_key as string)"
    if pseudo & {"ROWTIME", TIME}:
        fields["ROWTIME"] = row_time(relation)
    if "ROWPARTITION" in pseudo:
        fields["ROWPARTITION"] = "_partition"
    if "ROWOFFSET" in pseudo:
        fields["ROWOFFSET"] = "_offset"
    if TIME in pseudo:
        fields[TIME] = "timestamp_millis(ROWTIME)"
    return [*steps, {"set": fields}] if fields else steps


def _header(name: str) -> str:
    """All headers, or the last one of a name."""
    if name == "*":
        return "coalesce(transform(_headers, h -> named_struct('KEY', h.key, 'VALUE', h.value)), array())"
    return f"try_element_at(filter(_headers, h -> h.key = {text_literal(name)}), -1).value"


def row_time(relation: Relation) -> str:
    """The time of a row in milliseconds."""
    if relation.timestamp is None:
        return "unix_millis(_timestamp)"
    column = relation.column(relation.timestamp)
    assert column is not None
    if relation.timestamp_format is not None:
        return f"unix_millis(to_timestamp({quoted(column.name)}, {text_literal(relation.timestamp_format)}))"
    name = quoted(column.name)
    return f"unix_millis({name})" if column.type.name == "TIMESTAMP" else name


def _value_steps(relation: Relation) -> list[Step]:
    columns = relation.values
    if not columns or relation.formats.value == "NONE":
        return []
    if relation.formats.value == "KAFKA":
        return [{"set": {columns[0].name: _from_bytes("_value", _only(relation).type)}}]
    if relation.formats.value == "DELIMITED":
        _refuse_nested(relation, columns)
        fields = {column.name: _stored(column.type) for column in columns}
        parse = {"csv": fields, "separator": relation.formats.delimiter, "empty": "null"}
        return [{"parse": parse}, *_restored(columns)]
    if not relation.formats.wraps and len(relation.values) == 1:
        content = _from_json("_value", columns[0].type)
        return [{"set": {columns[0].name: content}}, *_restored(columns)]
    return _json_steps(columns)


def _schema_steps(relation: Relation) -> list[Step]:
    """Values that name their schema: the fields have the names that they have there."""
    columns, form = relation.values, relation.formats.value
    fields = {
        column.name: _decoded(quoted(name), kind, form == "JSON_SR")
        for column, name, kind in _fields_of(columns, form)
    }
    parse = schema_of(relation, "value", form, columns)
    return [{"parse": parse}, {"set": fields}, {"keep": [column.name for column in columns]}]


def _fields_of(columns: tuple[Column, ...], form: str) -> Iterator[tuple[Column, str, SqlType]]:
    """Columns with the names and types that they have in their schema."""
    for column in columns:
        if form == BARE:
            yield column, column.name, in_capitals(column.type)
        else:
            yield column, column.typed or column.name, column.type


def schema_of(relation: Relation, part: str, form: str, columns: tuple[Column, ...]) -> dict[str, Any]:
    """The entry of a pipeline with the schema of keys or values. part: key or value. Raises SqlError."""
    if form == BARE:
        return {"protobuf": {"schema": schema_text("PROTOBUF", columns)}}
    return {"registry": {"url": relation.formats.registry, "subject": f"{relation.topic}-{part}"}}


def written_schema(relation: Relation, part: str, form: str, columns: tuple[Column, ...]) -> dict[str, Any]:
    """The entry of an output with the schema of keys or values, and their fields. Raises SqlError."""
    entry = schema_of(relation, part, form, columns)
    if form == BARE:
        entry = {"protobuf": entry["protobuf"]["schema"]}
    return {**entry, "fields": [column.name for column in columns]}


def is_plain_key(relation: Relation) -> bool:
    """Whether the schema of a key is that of its only column, not that of a record with one: so it is in ksqlDB."""
    return len(relation.keys) == 1 and relation.formats.key in ("AVRO", "JSON_SR")


def _key_schema_steps(relation: Relation) -> list[Step]:
    """Keys that name their schema. Raises SqlError."""
    keys, as_json = relation.keys, relation.formats.key == "JSON_SR"
    check_key(relation)
    ((kind, place),) = schema_of(relation, "key", relation.formats.key, keys).items()
    place |= {"of": "key", "missing": "null"}
    if relation.window is not None:
        place["trailing"] = WINDOW_BYTES[relation.window.kind == "SESSION"]
    plain = is_plain_key(relation)
    fields = {
        column.name: _decoded(quoted(f"{KEY_FIELD}{VALUE if plain else name}"), column.type, as_json)
        for column, name, _ in _fields_of(keys, relation.formats.key)
    }
    kept = [column.name for column in (*keys, *relation.values) if _is_read(column, relation)]
    return [{"parse": {kind: place, "prefix": KEY_FIELD}}, {"set": fields}, {"keep": kept}]


def _is_read(column: Column, relation: Relation) -> bool:
    return column.is_key or relation.formats.value != "NONE"


def check_key(relation: Relation) -> None:
    """Raises SqlError for a column that a key with a schema cannot have."""
    for column in relation.keys:
        if column.type.items:
            raise SqlError(
                f"key column {column.name} is {column.type}, which a key in {relation.formats.key} cannot have: "
                "use key_format='JSON'"
            )
        if relation.formats.key == "JSON_SR" and encodable("x", column.type) != "x":
            raise SqlError(
                f"key column {column.name} is {column.type}, which a key in JSON_SR cannot have: use AVRO"
            )


def _decoded(value: str, kind: SqlType, as_json: bool) -> str:
    """A value of a schema's type as a column's type. as_json: times are numbers there, and bytes text."""
    if as_json and kind.name == "BYTES":
        return f"unbase64({value})"
    if as_json and kind.name in ("TIMESTAMP", "DATE"):
        return restored(value, kind)
    if not kind.items:
        return f"cast({value} as {kind.spark})"
    if (
        not any(_decoded("x", item, as_json) != f"cast(x as {item.spark})" for item in kind.items)
        and kind.name != "STRUCT"
    ):
        return f"cast({value} as {kind.spark})"
    if kind.name == "ARRAY":
        return f"transform({value}, x -> {_decoded('x', kind.items[0], as_json)})"
    if kind.name == "MAP":
        return f"transform_values({value}, (k, x) -> {_decoded('x', kind.items[1], as_json)})"
    parts = [
        f"{text_literal(name)}, {_decoded(f'{value}.{quoted(typed)}', item, as_json)}"
        for name, typed, item in _fields(kind)
    ]
    return f"CASE WHEN {value} IS NOT NULL THEN named_struct({', '.join(parts)}) END"


def _from_json(of: str, kind: SqlType) -> str:
    """A value of JSON that is no object of columns; read as the element of an array, because any value may be one."""
    array = text_literal(f"array<{_stored(kind)}>")
    return f"get(from_json(concat('[', cast({of} as string), ']'), {array}), 0)"


def _only(relation: Relation) -> Column:
    """The only column of the value. Raises SqlError."""
    columns = relation.values
    if len(columns) != 1:
        raise SqlError(
            f"{relation.name}: VALUE_FORMAT {relation.formats.value} is for one column, not for {len(columns)}: "
            f"{', '.join(c.name for c in columns)}"
        )
    return columns[0]


def _refuse_nested(relation: Relation, columns: tuple[Column, ...]) -> None:
    for column in columns:
        if column.type.items:
            raise SqlError(
                f"{relation.name}: column {column.name} is {column.type}, which the format DELIMITED cannot hold: use JSON"
            )


def _json_steps(columns: tuple[Column, ...]) -> list[Step]:
    """Names in JSON objects are found in capitals, in small letters, and as they were typed."""
    fields: dict[str, str] = {}
    chosen: dict[str, str] = {}
    for column in columns:
        names = _spellings(column.name, column.typed)
        fields |= dict.fromkeys(names, _stored(column.type))
        if len(names) > 1:
            chosen[column.name] = f"coalesce({', '.join(map(quoted, names))})"
    wanted = {column.name for column in columns}
    surplus = [name for name in fields if name not in wanted]
    steps: list[Step] = [{"parse": {"json": fields, "quoted": "number"}}]
    if chosen:
        steps.append({"set": chosen})
    if surplus:
        steps.append({"drop": surplus})
    return steps + _restored(columns)


def _stored(kind: SqlType) -> str:
    """The type in JSON and in delimited text: times are numbers there, and fields of structs have any spelling."""
    if kind.name == "STRUCT":
        parts = []
        for name, typed, item in _fields(kind):
            parts += [f"{quoted(spelt)}:{_stored(item)}" for spelt in _spellings(name, typed)]
        return f"struct<{','.join(parts)}>"
    if kind.items:
        return f"{kind.name.lower()}<{','.join(map(_stored, kind.items))}>"
    return {"TIMESTAMP": "bigint", "DATE": "int"}.get(kind.name, kind.spark)


def _fields(kind: SqlType) -> list[tuple[str, str, SqlType]]:
    """The fields of a struct: names, names as they were typed, types."""
    return list(zip(kind.fields, kind.typed or kind.fields, kind.items, strict=True))


def _differs(kind: SqlType) -> bool:
    """Whether values of a type are stored as something else."""
    return kind.name in ("STRUCT", "TIMESTAMP", "DATE") or any(map(_differs, kind.items))


def _restored(columns: tuple[Column, ...]) -> list[Step]:
    fields = {c.name: restored(quoted(c.name), c.type) for c in columns if _differs(c.type)}
    return [{"set": fields}] if fields else []


def restored(value: str, kind: SqlType, depth: int = 0) -> str:
    """A value of JSON, read with the type `_stored`, as its own type."""
    if not _differs(kind):
        return value
    if kind.name == "TIMESTAMP":
        return f"timestamp_millis({value})"
    if kind.name == "DATE":
        return f"date_from_unix_date({value})"
    inner = f"x{depth}"
    if kind.name == "ARRAY":
        return f"transform({value}, {inner} -> {restored(inner, kind.items[0], depth + 1)})"
    if kind.name == "MAP":
        return (
            f"transform_values({value}, (k{depth}, {inner}) -> {restored(inner, kind.items[1], depth + 1)})"
        )
    parts = []
    for name, typed, item in _fields(kind):
        names = [f"{value}.{quoted(spelt)}" for spelt in _spellings(name, typed)]
        member = names[0] if len(names) == 1 else f"coalesce({', '.join(names)})"
        parts.append(f"{text_literal(name)}, {restored(member, item, depth)}")
    return f"CASE WHEN {value} IS NOT NULL THEN named_struct({', '.join(parts)}) END"


def storable(value: str, kind: SqlType, depth: int = 0) -> str:
    """A value as JSON and delimited text hold it."""
    if kind.name == "TIMESTAMP":
        return f"unix_millis({value})"
    if kind.name == "DATE":
        return f"unix_date({value})"
    if not _has_time(kind):
        return value
    inner = f"x{depth}"
    if kind.name == "ARRAY":
        return f"transform({value}, {inner} -> {storable(inner, kind.items[0], depth + 1)})"
    if kind.name == "MAP":
        return (
            f"transform_values({value}, (k{depth}, {inner}) -> {storable(inner, kind.items[1], depth + 1)})"
        )
    parts = [
        f"{text_literal(name)}, {storable(f'{value}.{quoted(name)}', item, depth)}"
        for name, _, item in _fields(kind)
    ]
    return f"CASE WHEN {value} IS NOT NULL THEN named_struct({', '.join(parts)}) END"


def encodable(value: str, kind: SqlType) -> str:
    """A value as JSON with a schema holds it."""
    return f"base64({value})" if kind.name == "BYTES" else storable(value, kind)


def _has_time(kind: SqlType) -> bool:
    return kind.name in ("TIMESTAMP", "DATE") or any(map(_has_time, kind.items))


def _key_steps(relation: Relation) -> list[Step]:
    keys = relation.keys
    if not keys or relation.formats.key in ("NONE", *ENCODED):
        return []
    key = "_key"
    if relation.window is not None:
        key = f"substring(_key, 1, length(_key) - {WINDOW_BYTES[relation.window.kind == 'SESSION']})"
    form = relation.formats.key
    if len(keys) > 1:
        if form not in ("JSON", "DELIMITED"):
            raise SqlError(
                f"{relation.name}: a key of {len(keys)} columns needs KEY_FORMAT JSON or DELIMITED"
            )
        return [{"set": _of_parts(key, keys, form)}]
    column = keys[0]
    if form == "KAFKA":
        if column.type.name == "STRING" and key == "_key":
            return [{"metadata": {column.name: "key"}}]
        return [{"set": {column.name: _from_bytes(key, column.type)}}]
    if form == "JSON" and column.type.items:
        content = _from_json(key, column.type)
        return [{"set": {column.name: restored(content, column.type)}}]
    text = f"cast({key} as string)"
    if form == "JSON":
        text = f"get_json_object(concat('[', {text}, ']'), '$[0]')"
    return [{"set": {column.name: _of_text(text, column.type)}}]


def _of_parts(key: str, keys: tuple[Column, ...], form: str) -> dict[str, str]:
    """The columns of a key that has several."""
    fields = {}
    for number, column in enumerate(keys):
        if form == "JSON":
            paths = [text_literal("$." + name) for name in _spellings(column.name, column.typed)]
            each = [f"get_json_object(cast({key} as string), {path})" for path in paths]
            text = f"coalesce({', '.join(each)})"
        else:
            kinds = ", ".join(f"c{at} string" for at in range(len(keys)))
            text = f"from_csv(cast({key} as string), {text_literal(kinds)}).c{number}"
        fields[column.name] = _of_text(text, column.type)
    return fields


def _of_text(text: str, kind: SqlType) -> str:
    """A column of a key, of its text."""
    if kind.name in ("TIMESTAMP", "DATE"):
        return restored(f"try_cast({text} as {_stored(kind)})", kind)
    if kind.name == "BYTES":
        return f"unbase64({text})"
    return text if kind.name == "STRING" else f"try_cast({text} as {kind.spark})"


def _spellings(name: str, typed: str) -> list[str]:
    return list(dict.fromkeys([name, name.lower(), typed or name]))


def _from_bytes(of: str, kind: SqlType) -> str:
    """A value of Kafka's own serializers: text as UTF-8, numbers as 4 or 8 bytes, the highest first."""
    if kind.name == "STRING":
        return f"cast({of} as string)"
    if kind.name == "BYTES":
        return of
    number = f"cast(conv(hex({of}), 16, -10) as bigint)"
    if kind.name == "INTEGER":
        return f"cast((cast(conv(hex({of}), 16, 10) as bigint) ^ 2147483648L) - 2147483648L as int)"
    if kind.name == "BIGINT":
        return number
    if kind.name == "DOUBLE":
        return f"cast(java_method('java.lang.Double', 'longBitsToDouble', {number}) as double)"
    raise SqlError(f"format KAFKA is for STRING, INT, BIGINT, DOUBLE and BYTES, not for {kind}: use JSON")


def window_bound(relation: Relation, which: str) -> str:
    """The start or end of a row's window, in milliseconds, of its record's key."""
    window = relation.window
    assert window is not None
    last = "cast(conv(hex(substring(_key, -8)), 16, -10) as bigint)"
    if which == WINDOW_START:
        return last
    if window.kind == "SESSION":
        return "cast(conv(hex(substring(_key, -16, 8)), 16, -10) as bigint)"
    return f"{last} + {round(duration_seconds(window.size) * 1000)}"


def bound_of_group(window: Window, which: str) -> str:
    """The start or end of a group's window, in milliseconds. A session ends with its last row in ksqlDB; in a pipeline, with
    the pause after that."""
    millis = f"unix_millis({quoted(which)})"
    if which == WINDOW_END and window.kind == "SESSION":
        return f"({millis} - {round(duration_seconds(window.size) * 1000)})"
    return millis


# --- writing ------------------------------------------------------------------------------------------


def encoded_key(relation: Relation, *, carried: bool) -> dict[str, Any]:
    """The key of an output, of a row's columns, with a schema. carried: see `key_expression`. Raises SqlError."""
    check_key(relation)
    entry = written_schema(relation, "key", relation.formats.key, relation.keys)
    if relation.window is not None:
        entry["then"] = _window_bytes(relation.window, carried=carried)
    return entry


def _window_bytes(window: Window, *, carried: bool) -> str:
    """The part of a key that is its row's window."""
    session = window.kind == "SESSION"
    if carried:
        return f"substring(_key, -{WINDOW_BYTES[session]})"
    names = [WINDOW_END, WINDOW_START] if session else [WINDOW_START]
    parts = [_long_bytes(bound_of_group(window, name)) for name in names]
    return parts[0] if len(parts) == 1 else f"concat({', '.join(parts)})"


def key_expression(relation: Relation, *, carried: bool = False) -> str | None:
    """The record's key, of a row's columns; None without one. A row of a window has the window's start after the key, one of
    a session its end and its start. carried: these are those of the record that was read."""
    keys = relation.keys
    if not keys or relation.formats.key in ("NONE", *ENCODED):
        return None
    key_text, is_text = _plain_key(relation, keys)
    if relation.window is None:
        return key_text
    key = f"cast({key_text} as binary)" if is_text else key_text
    return f"concat({key}, {_window_bytes(relation.window, carried=carried)})"


def _plain_key(relation: Relation, keys: tuple[Column, ...]) -> tuple[str, bool]:
    """The key without its window, and whether it is text."""
    form = relation.formats.key
    if len(keys) > 1:
        if form == "JSON":
            return _json_object(keys, {}), True
        if form == "DELIMITED":
            return f"to_csv(named_struct({_named(keys, {})}))", True
        raise SqlError(
            f"{relation.name} has a key of {len(keys)} columns ({', '.join(k.name for k in keys)}): write "
            "WITH (key_format='JSON')"
        )
    column = keys[0]
    name = quoted(column.name)
    if form == "JSON":
        return _bare_json(storable(name, column.type)), True
    if form == "DELIMITED":
        _refuse_nested(relation, keys)
        return f"cast({storable(name, column.type)} as string)", True
    return _to_bytes(name, column.type), column.type.name == "STRING"


def _bare_json(value: str) -> str:
    """A value as JSON without an object around it; null stays null."""
    # The element of an array, without its brackets: text gets quotes, numbers do not.
    array = f"to_json(array({value}), map('ignoreNullFields', 'false'))"
    return f"CASE WHEN {value} IS NOT NULL THEN substring({array}, 2, length({array}) - 2) END"


def _to_bytes(name: str, kind: SqlType) -> str:
    if kind.name in ("STRING", "BYTES"):
        return name
    if kind.name == "INTEGER":
        return f"unhex(right({_hex(f'cast({name} as bigint)')}, 8))"
    if kind.name == "BIGINT":
        return f"unhex({_hex(name)})"
    if kind.name == "DOUBLE":
        bits = f"java_method('java.lang.Double', 'doubleToLongBits', {name})"
        return f"CASE WHEN {name} IS NOT NULL THEN unhex({_hex(f'cast({bits} as bigint)')}) END"
    raise SqlError(
        f"format KAFKA is for STRING, INT, BIGINT, DOUBLE and BYTES, not for {kind}: use JSON, for a key key_format='JSON'"
    )


def _hex(number: str) -> str:
    return f"lpad(hex({number}), 16, '0')"


def _long_bytes(number: str) -> str:
    return f"unhex({_hex(number)})"


def value_expression(relation: Relation) -> str | None:
    """The record's value, of a row's columns."""
    columns = relation.values
    if not columns or relation.formats.value in ("NONE", *ENCODED):
        return None
    if relation.formats.value == "KAFKA":
        column = _only(relation)
        return _to_bytes(quoted(column.name), column.type)
    if relation.formats.value == "DELIMITED":
        _refuse_nested(relation, columns)
        fields = _named(columns, dict(relation.bounds))
        options = f"map('sep', {text_literal(relation.formats.delimiter)})"
        return f"to_csv(named_struct({fields}), {options})"
    if not relation.formats.wraps and len(columns) == 1:
        return _bare_json(_written(columns[0], dict(relation.bounds)))
    return _json_object(columns, dict(relation.bounds))


def _written(column: Column, bounds: Mapping[str, str]) -> str:
    if bound := bounds.get(column.name):
        return bound
    return storable(quoted(column.name), column.type)


def _named(columns: tuple[Column, ...], bounds: Mapping[str, str]) -> str:
    return ", ".join(f"{text_literal(column.name)}, {_written(column, bounds)}" for column in columns)


def _json_object(columns: tuple[Column, ...], bounds: Mapping[str, str]) -> str:
    return f"to_json(named_struct({_named(columns, bounds)}), map('ignoreNullFields', 'false'))"
