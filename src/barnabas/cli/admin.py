"""Requests to a cluster that several commands need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from barnabas.admin import Admin, ResourceError, Results, TopicPartition
from barnabas.terminal.administering import explain_error, saying
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, CliError, UsageError
from barnabas.terminal.offsets import Bounds, Place, resolve
from barnabas.terminal.output import print_json
from barnabas.terminal.runner import say_error
from barnabas.wire.errors import ErrorCode

Key = tuple[str, int]
"""Topic and partition."""


def report(
    results: Results[Any, Any],
    done: str,
    accept: Mapping[ErrorCode, str],
    verb: str,
    json: bool,
    noun: str = "topic",
) -> int:
    """Print the result for each topic; the exit code. accept: error codes that are no failure, with the word to
    print.
    """
    rows = [{noun: name, "result": done} for name in results.done]
    for name, error in results.failed.items():
        if isinstance(error, ResourceError) and error.code in accept:
            rows.append({noun: name, "result": accept[ErrorCode(error.code)]})
        else:
            rows.append({noun: name, "result": "failed", "error": explain_error(error)})
    if json:
        print_json(rows)
    for row in rows:
        if "error" in row:
            say_error(f"barnabas {verb}", f"{row[noun]}: {row['error']}")
        elif not json:
            print(f"{row['result']} {row[noun]}")
    return EXIT_FAILED if any("error" in row for row in rows) else EXIT_OK


def committed_of(admin: Admin, group: str) -> dict[Key, int]:
    """The offsets that a group has committed. Raises CliError."""
    with saying(f"{group}: cannot read its offsets"):
        return {key: committed.offset for key, committed in admin.groups.offsets([group])[group].items()}


def keys_of(admin: Admin, topics: Sequence[str], current: Mapping[Key, int]) -> list[Key]:
    """The partitions that --topic names, or all with an offset. Raises CliError, UsageError."""
    if not topics:
        return sorted(current)
    there = admin.topics.list()
    keys: list[Key] = []
    for item in topics:
        name, _, numbers = item.partition(":")
        if name not in there:
            raise CliError(f"{name}: no such topic; `barnabas topic list` shows what is there")
        if not all(number.isdigit() for number in numbers.split(",") if numbers):
            raise UsageError(f"--topic {item!r} is not TOPIC or TOPIC:0,1")
        known = [partition.number for partition in there[name].partitions]
        chosen = [int(number) for number in numbers.split(",")] if numbers else known
        unknown = sorted(set(chosen) - set(known))
        if unknown:
            raise CliError(f"{name}: no partition {unknown[0]}")
        keys += [(name, number) for number in chosen]
    return keys


def list_offsets(admin: Admin, keys: Iterable[Key], place: int) -> dict[Key, int]:
    """The offset of a place or time in each partition, -1 where there is none. Raises CliError."""
    results = admin.records.offsets({TopicPartition(*key): place for key in keys})
    offsets = {}
    for key in results:
        with saying(f"offsets of {key.topic}"):
            offset = results[key].offset
        offsets[key.topic, key.partition] = -1 if offset is None else int(offset)
    return offsets


def bounds_of(admin: Admin, keys: Sequence[Key], current: Mapping[Key, int]) -> dict[Key, Bounds]:
    """First and next offset of each log, and the group's own. Raises CliError."""
    results = admin.records.bounds(keys)
    bounds_by_key = {}
    for key in keys:
        with saying(f"offsets of {key[0]}"):
            bounds = results[TopicPartition(*key)]
        bounds_by_key[key] = Bounds(bounds.start, bounds.end, current.get(key))
    return bounds_by_key


def resolve_all(
    admin: Admin, place: Place, keys: Sequence[Key], current: Mapping[Key, int]
) -> dict[Key, int]:
    """The offset of a position in each partition."""
    bounds_by_key: dict[Key, Bounds] = bounds_of(admin, keys, current)
    times: dict[int, dict[Key, int]] = {}

    def at_time(key: Key, time_ms: int) -> int:
        if time_ms not in times:
            times[time_ms] = list_offsets(admin, keys, time_ms)
        return times[time_ms][key]

    return {key: resolve(place, bounds_by_key[key], lambda ms, key=key: at_time(key, ms)) for key in keys}  # type: ignore[misc]


def clamp(admin: Admin, wanted: Mapping[Key, int]) -> dict[Key, int]:
    """Offsets cut to what each log holds."""
    bounds_by_key = bounds_of(admin, list(wanted), {})
    return {
        key: min(max(offset, bounds_by_key[key].start), bounds_by_key[key].end)
        for key, offset in wanted.items()
    }
