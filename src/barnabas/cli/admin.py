"""Requests to a cluster through librdkafka's admin client that several commands need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from barnabas.terminal.connection import REQUEST_TIMEOUT_SECONDS, await_result, explain
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, CliError, UsageError
from barnabas.terminal.offsets import Bounds, Place, resolve
from barnabas.terminal.output import print_json
from barnabas.terminal.runner import say_error

Key = tuple[str, int]
"""Topic and partition."""


def all_topics(admin: Any, topic: str | None = None) -> Any:
    """Cluster metadata. Raises CliError."""
    try:
        return admin.list_topics(topic, timeout=REQUEST_TIMEOUT_SECONDS)
    except KafkaException as error:
        raise CliError(f"cannot read the cluster's metadata: {explain(error.args[0])}") from None


def report(
    futures: dict[str, Any], done: str, accept: dict[int, str], verb: str, json: bool, noun: str = "topic"
) -> int:
    """Print the result for each topic; the exit code. accept: error codes that are no failure, with the word to
    print.
    """
    results = []
    for name, future in futures.items():
        error = future.exception(REQUEST_TIMEOUT_SECONDS + 5)
        if error is None:
            results.append({noun: name, "result": done})
        elif isinstance(error.args[0], KafkaError) and error.args[0].code() in accept:
            results.append({noun: name, "result": accept[error.args[0].code()]})
        else:
            text = explain(error.args[0]) if isinstance(error.args[0], KafkaError) else str(error)
            results.append({noun: name, "result": "failed", "error": text})
    if json:
        print_json(results)
    for row in results:
        if "error" in row:
            say_error(f"barnabas {verb}", f"{row[noun]}: {row['error']}")
        elif not json:
            print(f"{row['result']} {row[noun]}")
    return EXIT_FAILED if any("error" in row for row in results) else EXIT_OK


def committed_of(admin: Any, group: str) -> dict[tuple[str, int], int]:
    """The offsets that a group has committed. Raises CliError."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    futures = admin.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group)], request_timeout=REQUEST_TIMEOUT_SECONDS
    )
    found = await_result(futures[group], f"{group}: cannot read its offsets")
    return {(part.topic, part.partition): part.offset for part in found.topic_partitions if part.offset >= 0}


def keys_of(admin: Any, topics: Sequence[str], current: dict[Key, int]) -> list[Key]:
    """The partitions that --topic names, or all with an offset. Raises CliError, UsageError."""
    if not topics:
        return sorted(current)
    there = all_topics(admin).topics
    keys = []
    for item in topics:
        name, _, numbers = item.partition(":")
        if name not in there:
            raise CliError(f"{name}: no such topic; `barnabas topic list` shows what is there")
        if not all(number.isdigit() for number in numbers.split(",") if numbers):
            raise UsageError(f"--topic {item!r} is not TOPIC or TOPIC:0,1")
        chosen = [int(number) for number in numbers.split(",")] if numbers else sorted(there[name].partitions)
        unknown = sorted(set(chosen) - set(there[name].partitions))
        if unknown:
            raise CliError(f"{name}: no partition {unknown[0]}")
        keys += [(name, number) for number in chosen]
    return keys


def list_offsets(admin: Any, keys: Sequence[Key], spec: Any) -> dict[Key, int]:
    """One kind of offset of each partition. Raises CliError."""
    futures = admin.list_offsets(
        {TopicPartition(*key): spec for key in keys}, request_timeout=REQUEST_TIMEOUT_SECONDS
    )
    return {
        (part.topic, part.partition): await_result(future, f"offsets of {part.topic}").offset
        for part, future in futures.items()
    }


def bounds_of(admin: Any, keys: Sequence[Key], current: dict[Key, int]) -> dict[Key, Bounds]:
    """First and next offset of each log, and the group's own."""
    from confluent_kafka.admin import OffsetSpec

    starts = list_offsets(admin, keys, OffsetSpec.earliest())
    ends = list_offsets(admin, keys, OffsetSpec.latest())
    return {key: Bounds(starts[key], ends[key], current.get(key)) for key in keys}


def resolve_all(admin: Any, place: Place, keys: Sequence[Key], current: dict[Key, int]) -> dict[Key, int]:
    """The offset of a position in each partition."""
    from confluent_kafka.admin import OffsetSpec

    found: dict[Key, Bounds] = bounds_of(admin, keys, current)
    times: dict[int, dict[Key, int]] = {}

    def at_time(key: Key, time_ms: int) -> int:
        if time_ms not in times:
            times[time_ms] = list_offsets(admin, keys, OffsetSpec.for_timestamp(time_ms))
        return times[time_ms][key]

    return {key: resolve(place, found[key], lambda ms, key=key: at_time(key, ms)) for key in keys}  # type: ignore[misc]


def clamp(admin: Any, wanted: dict[Key, int]) -> dict[Key, int]:
    """Offsets cut to what each log holds."""
    found = bounds_of(admin, list(wanted), {})
    return {key: min(max(offset, found[key].start), found[key].end) for key, offset in wanted.items()}
