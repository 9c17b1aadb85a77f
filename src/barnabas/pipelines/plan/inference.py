"""Schema, key and kind of a relation, from those of the relations that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from barnabas.pipelines.plan.operators import Explode, Operator, Rename
from barnabas.pipelines.plan.relations import Derived, Join, Relation, Scan, Union
from barnabas.pipelines.plan.schema import Key, RowKind, Schema, common


def inferred(relation: Relation, above: Mapping[str, Relation]) -> Relation:
    """The relation with schema, key and kind. above: the relations that it reads, which have them."""
    schema, key, rows = _origin(relation, above)
    aggregate = relation.aggregate
    if aggregate is not None and not aggregate.emit:
        changes = rows is RowKind.TABLE or aggregate.window is None
        aggregate = replace(aggregate, emit="changes" if changes else "final")
    for operator in relation.operators:
        key = _key_after(key, operator)
        schema = operator.after(schema)
    if aggregate is not None:
        schema = aggregate.after(schema)
        key = Key(tuple(aggregate.groups)) if aggregate.groups else None
        rows = RowKind.STREAM if aggregate.emit == "final" else RowKind.TABLE
    if key is not None and not set(key.fields) <= set(schema.fields) and schema.closed:
        key = None
    return replace(relation, schema=schema, key=key, rows=rows, aggregate=aggregate)


def _origin(relation: Relation, above: Mapping[str, Relation]) -> tuple[Schema, Key | None, RowKind]:
    origin = relation.origin
    if isinstance(origin, Scan):
        if origin.table:
            return Schema(), Key(), RowKind.TABLE
        changes = origin.source.deletes
        return Schema(), Key() if changes else None, RowKind.CHANGELOG if changes else RowKind.STREAM
    if isinstance(origin, Derived):
        read = above[origin.relation]
        return read.schema, read.key, read.rows
    if isinstance(origin, Union):
        several = [above[name] for name in origin.relations]
        keys = {read.key for read in several}
        kinds = {read.rows for read in several}
        changes = RowKind.CHANGELOG in kinds
        return (
            common(read.schema for read in several),
            keys.pop() if len(keys) == 1 else None,
            RowKind.CHANGELOG if changes else RowKind.STREAM,
        )
    return _join(origin, above[origin.left], above[origin.right])


def _join(origin: Join, left: Relation, right: Relation) -> tuple[Schema, Key | None, RowKind]:
    both = {ours for ours, theirs in origin.on.items() if ours == theirs and not origin.prefix}
    others = {origin.prefix + name: kind for name, kind in right.schema.fields.items() if name not in both}
    partial = left.schema.partial or right.schema.partial
    rows = RowKind.TABLE if left.rows is RowKind.TABLE else RowKind.STREAM
    return Schema({**left.schema.fields, **others}, partial=partial), None, rows


def _key_after(key: Key | None, operator: Operator) -> Key | None:
    """The key of the rows that an operator makes; None if several of them may have the same one."""
    if isinstance(operator, Explode):
        return None
    if key is not None and isinstance(operator, Rename):
        return Key(tuple(operator.names.get(name, name) for name in key.fields))
    return key
