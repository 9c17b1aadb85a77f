"""How rows of a stream or table are read from records, and written as records: steps and expressions of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from barnabas.pipelines.fronts.sql.catalog import Column, Relation
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.expressions import quoted, text_literal
from barnabas.pipelines.fronts.sql.types import SqlType

Step = dict[str, Any]
TIME: Final = "event_time"
"""The field with a row's time, as a timestamp. Columns have names in capitals."""
WINDOW_START: Final = "WINDOWSTART"
WINDOW_END: Final = "WINDOWEND"


# --- reading ------------------------------------------------------------------------------------------


def reading(relation: Relation, pseudo: set[str]) -> list[Step]:
    """The steps from a record to the columns of a row. pseudo: those of ROWTIME, ROWPARTITION, ROWOFFSET and TIME that are
    used."""
    steps = _key_steps(relation) + _value_steps(relation)
    made: dict[str, str] = {}
    if pseudo & {"ROWTIME", TIME}:
        made["ROWTIME"] = _row_time(relation)
    if "ROWPARTITION" in pseudo:
        made["ROWPARTITION"] = "_partition"
    if "ROWOFFSET" in pseudo:
        made["ROWOFFSET"] = "_offset"
    if TIME in pseudo:
        made[TIME] = "timestamp_millis(ROWTIME)"
    return [*steps, {"set": made}] if made else steps


def _row_time(relation: Relation) -> str:
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
        if len(columns) != 1:
            raise SqlError(f"{relation.name}: VALUE_FORMAT KAFKA is for one column, not for {len(columns)}")
        return [{"set": {columns[0].name: _from_bytes("_value", columns[0].type)}}]
    if relation.formats.value == "DELIMITED":
        fields = {column.name: _stored(column.type) for column in columns}
        parse = {"csv": fields, "separator": relation.formats.delimiter, "empty": "null"}
        return [{"parse": parse}, *_restored(columns)]
    return _json_steps(columns)


def _json_steps(columns: tuple[Column, ...]) -> list[Step]:
    """Names in JSON objects are found in capitals, in small letters, and as they were typed."""
    fields: dict[str, str] = {}
    chosen: dict[str, str] = {}
    for column in columns:
        names = _spellings(column)
        fields |= dict.fromkeys(names, _stored(column.type))
        if len(names) > 1:
            chosen[column.name] = f"coalesce({', '.join(map(quoted, names))})"
    wanted = {column.name for column in columns}
    surplus = [name for name in fields if name not in wanted]
    steps: list[Step] = [{"parse": {"json": fields}}]
    if chosen:
        steps.append({"set": chosen})
    if surplus:
        steps.append({"drop": surplus})
    return steps + _restored(columns)


def _stored(kind: SqlType) -> str:
    """The type in JSON and in delimited text: times are numbers there."""
    return {"TIMESTAMP": "bigint", "DATE": "int"}.get(kind.name) or _in_small(kind)


def _in_small(kind: SqlType) -> str:
    """Spark's type; the names of fields of structs in small letters, as they are in most JSON objects."""
    if kind.name == "STRUCT":
        pairs = zip(kind.fields, kind.items, strict=True)
        return f"struct<{','.join(f'`{name.lower()}`:{_in_small(item)}' for name, item in pairs)}>"
    if kind.items:
        return f"{kind.name.lower()}<{','.join(map(_in_small, kind.items))}>"
    return kind.spark


def _has_struct(kind: SqlType) -> bool:
    return kind.name == "STRUCT" or any(map(_has_struct, kind.items))


def _restored(columns: tuple[Column, ...]) -> list[Step]:
    made = {}
    for column in columns:
        name = quoted(column.name)
        if column.type.name == "TIMESTAMP":
            made[column.name] = f"timestamp_millis({name})"
        elif column.type.name == "DATE":
            made[column.name] = f"date_from_unix_date({name})"
        elif _has_struct(column.type):
            made[column.name] = f"cast({name} as {column.type.spark})"
    return [{"set": made}] if made else []


def _key_steps(relation: Relation) -> list[Step]:
    keys = relation.keys
    if not keys or relation.formats.key == "NONE":
        return []
    if relation.formats.key == "JSON" and len(keys) > 1:
        made = {
            column.name: f"try_cast(coalesce({', '.join(map(_json_field, _spellings(column)))}) as {column.type.spark})"
            for column in keys
        }
        return [{"set": made}]
    if len(keys) > 1:
        raise SqlError(f"{relation.name}: a key of {len(keys)} columns needs KEY_FORMAT JSON")
    column = keys[0]
    if relation.window is not None:
        return [{"set": {column.name: _from_bytes("substring(_key, 1, length(_key) - 8)", column.type)}}]
    if relation.formats.key == "KAFKA":
        if column.type.name == "STRING":
            return [{"metadata": {column.name: "key"}}]
        return [{"set": {column.name: _from_bytes("_key", column.type)}}]
    if relation.formats.key == "JSON":
        text = "get_json_object(concat('[', cast(_key as string), ']'), '$[0]')"
        return [{"set": {column.name: f"try_cast({text} as {column.type.spark})"}}]
    return [{"set": {column.name: f"try_cast(cast(_key as string) as {column.type.spark})"}}]


def _spellings(column: Column) -> list[str]:
    return list(dict.fromkeys([column.name, column.name.lower(), column.typed or column.name]))


def _json_field(name: str) -> str:
    return f"get_json_object(cast(_key as string), {text_literal('$.' + name)})"


def _from_bytes(of: str, kind: SqlType) -> str:
    """A value of Kafka's own serializers: text as UTF-8, whole numbers as 4 or 8 bytes, the highest first."""
    if kind.name == "STRING":
        return f"cast({of} as string)"
    if kind.name == "BYTES":
        return of
    number = f"cast(conv(hex({of}), 16, -10) as bigint)"
    if kind.name == "INTEGER":
        return f"cast((cast(conv(hex({of}), 16, 10) as bigint) ^ 2147483648L) - 2147483648L as int)"
    if kind.name == "BIGINT":
        return number
    raise SqlError(f"format KAFKA is for STRING, INT, BIGINT and BYTES, not for {kind}")


# --- writing ------------------------------------------------------------------------------------------


def key_expression(relation: Relation) -> str | None:
    """The record's key, of a row's columns; None without one. A row of a window has the window's start after the key."""
    keys = relation.keys
    if not keys or relation.formats.key == "NONE":
        return None
    if relation.formats.key == "JSON" and len(keys) > 1:
        return _json_object(keys, {})
    if len(keys) > 1:
        raise SqlError(
            f"{relation.name} has a key of {len(keys)} columns ({', '.join(k.name for k in keys)}): write "
            "WITH (key_format='JSON')"
        )
    column = keys[0]
    name = quoted(column.name)
    if relation.formats.key == "JSON":
        # The element of an array, without its brackets: text gets quotes, numbers do not.
        array = f"to_json(array({name}))"
        return f"substring({array}, 2, length({array}) - 2)"
    if relation.formats.key == "DELIMITED":
        return f"cast({name} as string)"
    made = _to_bytes(name, column.type)
    if relation.window is None:
        return made
    binary = f"cast({made} as binary)" if column.type.name == "STRING" else made
    return f"concat({binary}, {_long_bytes(f'unix_millis({WINDOW_START})')})"


def _to_bytes(name: str, kind: SqlType) -> str:
    if kind.name in ("STRING", "BYTES"):
        return name
    if kind.name == "INTEGER":
        return f"unhex(right({_hex(f'cast({name} as bigint)')}, 8))"
    if kind.name == "BIGINT":
        return f"unhex({_hex(name)})"
    raise SqlError(
        f"format KAFKA is for keys that are STRING, INT, BIGINT or BYTES, not for {kind}: use key_format='JSON'"
    )


def _hex(number: str) -> str:
    return f"lpad(hex({number}), 16, '0')"


def _long_bytes(number: str) -> str:
    return f"unhex({_hex(number)})"


def value_expression(relation: Relation) -> str | None:
    """The record's value, of a row's columns."""
    columns = relation.values
    if not columns or relation.formats.value == "NONE":
        return None
    if relation.formats.value == "KAFKA":
        if len(columns) != 1:
            raise SqlError(f"{relation.name}: VALUE_FORMAT KAFKA is for one column, not for {len(columns)}")
        return _to_bytes(quoted(columns[0].name), columns[0].type)
    if relation.formats.value == "DELIMITED":
        made = _named(columns, dict(relation.bounds))
        options = f"map('sep', {text_literal(relation.formats.delimiter)})"
        return f"to_csv(named_struct({made}), {options})"
    return _json_object(columns, dict(relation.bounds))


def _storable(column: Column, bounds: Mapping[str, str]) -> str:
    name = quoted(column.name)
    if bound := bounds.get(column.name):
        return f"unix_millis({bound})"
    return {"TIMESTAMP": f"unix_millis({name})", "DATE": f"unix_date({name})"}.get(column.type.name, name)


def _named(columns: tuple[Column, ...], bounds: Mapping[str, str]) -> str:
    return ", ".join(f"{text_literal(column.name)}, {_storable(column, bounds)}" for column in columns)


def _json_object(columns: tuple[Column, ...], bounds: Mapping[str, str]) -> str:
    return f"to_json(named_struct({_named(columns, bounds)}), map('ignoreNullFields', 'false'))"
