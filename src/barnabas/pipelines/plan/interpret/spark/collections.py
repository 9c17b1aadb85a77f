"""Spark's functions of arrays and maps, and those that take functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from barnabas.pipelines.plan.interpret.spark.values import Failed, Value, as_text

Body = tuple[int, Callable[..., Value]]
"""A function argument, and how many parameters it has."""


def _key(value: Value) -> Any:
    """What equal values have in common."""
    if isinstance(value, dict):
        return tuple((name, _key(one)) for name, one in value.items())
    if isinstance(value, list):
        return ("list", *map(_key, value))
    return (type(value) is bool, value)


def distinct(values: Sequence[Value]) -> list[Value]:
    by_key: dict[Any, Value] = {}
    for value in values:
        by_key.setdefault(_key(value), value)
    return list(by_key.values())


def _order(value: Value) -> Any:
    if isinstance(value, dict):
        return [(one is not None, _order(one)) for one in value.values()]
    if isinstance(value, list):
        return [(one is not None, _order(one)) for one in value]
    return value


def _sorted(values: list[Value], upwards: bool = True, nulls_last: bool | None = None) -> list[Value]:
    known = sorted((value for value in values if value is not None), key=_order, reverse=not upwards)
    nulls = [None] * (len(values) - len(known))
    last = not upwards if nulls_last is None else nulls_last
    return known + nulls if last else nulls + known


def _array_contains(values: list[Value], wanted: Value) -> Value:
    if any(_key(value) == _key(wanted) for value in values if value is not None):
        return True
    return None if None in values else False


def _position(values: list[Value], wanted: Value) -> int:
    keys = [_key(value) for value in values]
    return keys.index(_key(wanted)) + 1 if _key(wanted) in keys else 0


def _except(one: list[Value], other: list[Value]) -> list[Value]:
    gone = {_key(value) for value in other}
    return [value for value in distinct(one) if _key(value) not in gone]


def _intersect(one: list[Value], other: list[Value]) -> list[Value]:
    there = {_key(value) for value in other}
    return [value for value in distinct(one) if _key(value) in there]


def _extreme(choose: Callable[..., Value]) -> Callable[[list[Value]], Value]:
    def work(values: list[Value]) -> Value:
        known = [value for value in values if value is not None]
        return choose(known, key=_order) if known else None

    return work


def _join(values: list[Value], separator: str, null: str | None = None) -> str:
    shown = [null if value is None else as_text(value) for value in values]
    return separator.join(text for text in shown if text is not None)


def _slice(values: list[Value], start: int, length: int) -> list[Value]:
    if start == 0:
        raise Failed("slice counts from 1")
    begin = start - 1 if start > 0 else len(values) + start
    return values[begin : begin + length] if begin >= 0 else []


def _sequence(first: Value, last: Value, step: Value | None = None) -> list[Value]:
    by = step if step is not None else 1 if first <= last else -1
    if by == 0 or (last - first) * by < 0:
        if first == last:
            return [first]
        raise Failed(f"no steps of {by} lead from {first} to {last}")
    return [first + number * by for number in range(int((last - first) // by) + 1)]


def _map_from_arrays(keys: list[Value], values: list[Value]) -> dict[Value, Value]:
    if len(keys) != len(values) or None in keys:
        raise Failed("keys and values of a map differ in number, or a key is null")
    return dict(zip(keys, values, strict=True))


def _element_at(values: list[Value]) -> Value:
    of, at = values
    if of is None or at is None:
        return None
    if isinstance(of, dict):
        return of.get(at)
    if at == 0:
        raise Failed("elements of arrays count from 1")
    index = at - 1 if at > 0 else len(of) + at
    return of[index] if 0 <= index < len(of) else None


def _get(values: list[Value]) -> Value:
    of, at = values
    return None if of is None or at is None or not 0 <= at < len(of) else of[at]


def _map(values: list[Value]) -> Value:
    if None in values[::2]:
        raise Failed("the key of a map is null")
    return dict(zip(values[::2], values[1::2], strict=True))


def _remove(values: list[Value]) -> Value:
    of, gone = values
    return (
        None if of is None or gone is None else [one for one in of if one is None or _key(one) != _key(gone)]
    )


WHOLE_COLLECTIONS: Final[Mapping[str, Callable[[list[Value]], Value]]] = {
    "try_element_at": _element_at,
    "element_at": _element_at,
    "get": _get,
    "array": list,
    "map": _map,
    "array_remove": _remove,
}
PLAIN_COLLECTIONS: Final[Mapping[str, Callable[..., Value]]] = {
    "array_size": len,
    "size": len,
    "cardinality": len,
    "array_contains": _array_contains,
    "array_distinct": distinct,
    "array_position": _position,
    "array_except": _except,
    "array_intersect": _intersect,
    "array_union": lambda one, other: distinct([*one, *other]),
    "array_join": _join,
    "array_max": _extreme(max),
    "array_min": _extreme(min),
    "array_sort": lambda values: _sorted(values, nulls_last=True),
    "sort_array": _sorted,
    "slice": _slice,
    "sequence": _sequence,
    "map_from_arrays": _map_from_arrays,
    "map_keys": list,
    "map_values": lambda of: list(of.values()),
    "map_entries": lambda of: [{"key": key, "value": value} for key, value in of.items()],
    "map_from_entries": lambda of: {one["key"]: one["value"] for one in of},
    "reverse": lambda of: of[::-1],
    "map_concat": lambda *maps: {key: value for one in maps for key, value in one.items()},
}


def _transform(values: list[Value], bodies: list[Body]) -> Value:
    ((count, body),) = bodies
    return [body(value, at) if count == 2 else body(value) for at, value in enumerate(values[0])]


def _filter(values: list[Value], bodies: list[Body]) -> Value:
    ((count, body),) = bodies
    kept = enumerate(values[0])
    return [value for at, value in kept if (body(value, at) if count == 2 else body(value)) is True]


def _aggregate(values: list[Value], bodies: list[Body]) -> Value:
    total = values[1]
    for value in values[0]:
        total = bodies[0][1](total, value)
    return bodies[1][1](total) if len(bodies) > 1 else total


def _transform_values(values: list[Value], bodies: list[Body]) -> Value:
    return {key: bodies[0][1](key, value) for key, value in values[0].items()}


def _map_filter(values: list[Value], bodies: list[Body]) -> Value:
    return {key: value for key, value in values[0].items() if bodies[0][1](key, value) is True}


def _map_zip_with(values: list[Value], bodies: list[Body]) -> Value:
    one, other = values
    if other is None:
        return None
    return {key: bodies[0][1](key, one.get(key), other.get(key)) for key in {**one, **other}}


def _exists(values: list[Value], bodies: list[Body]) -> Value:
    verdicts = [bodies[0][1](value) for value in values[0]]
    return True if True in verdicts else None if None in verdicts else False


WITH_BODIES: Final[Mapping[str, Callable[[list[Value], list[Body]], Value]]] = {
    "transform": _transform,
    "filter": _filter,
    "aggregate": _aggregate,
    "reduce": _aggregate,
    "transform_values": _transform_values,
    "transform_keys": lambda values, bodies: {bodies[0][1](k, v): v for k, v in values[0].items()},
    "map_filter": _map_filter,
    "map_zip_with": _map_zip_with,
    "exists": _exists,
}
"""Functions that are null if their first argument is null."""
