"""What a request for records asks for: which partitions, from where, which records, how they are decoded."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from barnabas.admin.values import TopicPartition
from barnabas.client.errors import ClientError
from barnabas.console import rendering
from barnabas.console.asking import Ask
from barnabas.console.pages.records.showing import bytes_of
from barnabas.console.pages.topic import topic_of
from barnabas.console.records.filters import BadFilter, compile_filter
from barnabas.console.records.scanning import Wanted
from barnabas.console.records.searching import PARTITIONERS, Search, parse_cursor
from barnabas.console.said import Refused, Said, said

PLACES: Final = ("newest", "oldest", "offset", "time")

UNINDEXED_MIN: Final = 8 << 20
"""The end of a log that is being written is never indexed; only more than this is worth a word."""


class Question:
    """What a request for records asks for. numbers: the partitions that are looked at. notes: what a reader has to know."""

    def __init__(
        self,
        search: Search,
        wanted: Wanted,
        how: tuple[str, str],
        partitions: int,
        numbers: list[int],
        notes: list[Said],
    ) -> None:
        self.search = search
        self.wanted = wanted
        self.how = how
        self.partitions = partitions
        self.numbers = numbers
        self.notes = notes


async def question(ask: Ask, limit: int) -> Question:
    """The search that a request asks for. Raises Refused, ClientError."""
    topic = await topic_of(ask)
    count = len(topic.partitions)
    wanted, how = wanted_of(ask)
    numbers, notes = partitions_of(ask, count, wanted)
    starts, ends, failures = await _bounds(ask, topic.name, numbers)
    notes += failures
    place = ask.text("from", "newest")
    if place not in PLACES:
        raise Refused(400, said("{name} must be one of {choices}", name="from", choices=", ".join(PLACES)))
    backward = place == "newest"
    if ask.text("at"):
        _go_on(ask, starts, ends, backward=backward)
    elif place == "offset":
        offset = ask.number("offset", 0, 0, 1 << 62)
        for number in starts:
            if len(numbers) == 1 and not starts[number] <= offset <= ends[number]:
                notes.append(
                    said("Partition {partition} holds the offsets {start} to {end}", partition=number,
                         start=starts[number], end=ends[number])
                )  # fmt: skip
            starts[number] = min(max(starts[number], offset), ends[number])
    elif place == "time":
        await _from_time(ask, topic.name, starts, ends)
    ranges, sentences = await indexed(ask, topic.name, wanted, numbers)
    search = Search(
        ask.cluster.reading, ask.cluster.decoder, topic.name, wanted, starts, ends, limit, backward=backward,
        ranges=ranges,
    )  # fmt: skip
    notes += sentences
    return Question(search, wanted, how, count, numbers, notes)


def wanted_of(ask: Ask) -> tuple[Wanted, tuple[str, str]]:
    """What records have to be, and how they are decoded. Raises Refused."""
    how = ask.text("key_as", "auto"), ask.text("value_as", "auto")
    for one in how:
        if one not in ask.cluster.decoder.formats:
            raise Refused(
                400,
                said(
                    "{name} is not one of {choices}",
                    name=one[:40],
                    choices=", ".join(ask.cluster.decoder.formats),
                ),
            )
    fits = None
    if ask.text("filter"):
        try:
            fits = compile_filter(ask.text("filter"))
        except BadFilter as error:
            raise Refused(
                400,
                said("The filter cannot be understood: {reason}", reason=str(error)),
                said("For example: value.country = 'DE' AND amount > 100"),
            ) from None
    text = ask.raw("key")
    key = bytes_of(text, ask.text("key_format", "text"), "key") if text else None
    masks = ask.masks()
    if key is not None and masks.touches("key"):
        raise Refused(403, said("Keys of this topic are masked for you, and cannot be searched for"))
    return Wanted(key, fits, how, masks), how


def partitions_of(ask: Ask, count: int, wanted: Wanted) -> tuple[list[int], list[Said]]:
    """The partitions to look at, and what a reader has to know about the choice. Raises Refused."""
    if ask.text("partition"):
        number = ask.number("partition", 0, 0, count - 1)
        return [number], []
    how = ask.text("partitioner", "java")
    if wanted.key is None or how == "all":
        return list(range(count)), []
    choose = PARTITIONERS.get(how)
    if choose is None:
        known = ", ".join((*PARTITIONERS, "all"))
        raise Refused(400, said("{name} is not one of {choices}", name=how[:40], choices=known))
    number = choose(wanted.key, count)
    return [number], [
        said(
            "Only partition {partition} of {count} was searched: {client} sends this key there. "
            "Records that were written otherwise, or before partitions were added, are in others.",
            partition=number, count=count, client="Java" if how == "java" else how,
        )
    ]  # fmt: skip


async def indexed(
    ask: Ask, topic: str, wanted: Wanted, numbers: list[int]
) -> tuple[dict[int, list[tuple[int, int]]], list[Said]]:
    """(what to read of the partitions whose key index was asked for the key, what a reader has to know about that).

    Clusters without such indexes, and brokers that do not answer, leave everything to be read.
    """
    if wanted.key is None:
        return {}, []
    try:
        answers = await ask.admin.records.find_key([(topic, number) for number in numbers], wanted.key)
    except ClientError:
        return {}, []
    hits_by_partition = {place.partition: one for place, one in answers.done.items() if one is not None}
    if not hits_by_partition:
        return {}, []
    sentence = said(
        "The key index skipped {records} records ({size}) and {skipped} of {segments} segments.",
        records=rendering.number(sum(one.records_skipped for one in hits_by_partition.values())),
        size=rendering.size(sum(one.bytes_skipped for one in hits_by_partition.values())),
        skipped=sum(one.segments_skipped for one in hits_by_partition.values()),
        segments=sum(one.segments for one in hits_by_partition.values()),
    )  # fmt: skip
    notes = [sentence]
    left = sum(one.bytes_unindexed for one in hits_by_partition.values())
    if left > UNINDEXED_MIN:
        notes.append(said("{size} are not indexed yet, and were searched.", size=rendering.size(left)))
    ranges = {
        n: [(int(first), int(last)) for first, last in one.ranges] for n, one in hits_by_partition.items()
    }
    return ranges, notes


async def _bounds(
    ask: Ask, topic: str, numbers: list[int]
) -> tuple[dict[int, int], dict[int, int], list[Said]]:
    keys = [TopicPartition(topic, number) for number in numbers]
    bounds = await ask.admin.records.bounds(keys, read_committed=True)
    if not bounds.done:
        for error in bounds.failed.values():
            raise error
    starts = {key.partition: int(bound.start) for key, bound in bounds.done.items()}
    ends = {key.partition: int(bound.end) for key, bound in bounds.done.items()}
    notes = [
        said("Partition {partition} was not searched: {reason}", partition=key.partition, reason=str(error))
        for key, error in bounds.failed.items()
    ]
    return starts, ends, notes


def _go_on(ask: Ask, starts: dict[int, int], ends: dict[int, int], *, backward: bool) -> None:
    try:
        places = parse_cursor(ask.text("at"))
    except ValueError:
        raise Refused(400, said("{name} must look like {example}", name="at", example="0:15,1:20")) from None
    for number in list(starts):
        if number not in places:
            continue
        at = min(max(places[number], starts[number]), ends[number])
        if backward:
            ends[number] = at
        else:
            starts[number] = at


async def _from_time(ask: Ask, topic: str, starts: dict[int, int], ends: Mapping[int, int]) -> None:
    text = ask.required("time")
    try:
        when_ms = int(text) if text.isdecimal() else _milliseconds(text)
    except ValueError:
        raise Refused(
            400, said("{value} is not a time like 2026-01-31T12:00 (UTC) or 1767225600000", value=text[:60])
        ) from None
    offsets = await ask.admin.records.offsets({TopicPartition(topic, number): when_ms for number in starts})
    for key, place in offsets.done.items():
        number = key.partition
        starts[number] = (
            ends[number] if place.offset is None else min(max(place.offset, starts[number]), ends[number])
        )


def _milliseconds(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
