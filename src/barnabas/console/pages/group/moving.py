"""Moving a group's offsets: what would change is shown first, and exactly that is done afterwards, unless it has moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

from barnabas.admin.families.records import Bounds
from barnabas.admin.values import TopicPartition
from barnabas.client.errors import ClientError
from barnabas.console.asking import Ask, Done
from barnabas.console.rendering import encoded
from barnabas.console.said import Refused, said
from barnabas.console.site import Data

WAYS: Final = ("beginning", "end", "offset", "shift", "time", "list")
LINES_MAX: Final = 20_000


async def read_reset(ask: Ask) -> Data:
    """What a group's offsets can be moved to, and where they are"""
    name = ask.path["group"]
    offsets = (await ask.admin.groups.offsets([name]))[name]
    described = (await ask.admin.groups.describe([name])).done.get(name)
    return {
        "group": name,
        "topics": sorted({key.topic for key in offsets}),
        "offsets": [
            {"topic": key.topic, "partition": key.partition, "offset": committed.offset}
            for key, committed in sorted(offsets.items())
        ],
        "members": 0 if described is None else len(described.members),
        "ways": WAYS,
        "tab": "reset",
        "commands": [ask.command("group", "reset", name, "--to", "beginning")],
    }


async def preview(ask: Ask) -> Done:
    """What moving would do, per partition: to (beginning, end, offset, shift, time, list), value, topic; changes nothing"""
    name = ask.path["group"]
    committed = {
        key: int(committed_offset.offset)
        for key, committed_offset in (await ask.admin.groups.offsets([name]))[name].items()
    }
    way, value = ask.text("to", "beginning"), ask.text("value")
    if way == "list":
        wanted = parse_lines(ask.raw("lines") or "")
        targets = await _within(ask, wanted)
    else:
        targets = await _targets(ask, await _chosen(ask, committed), committed, way, value)
    rows = [
        {
            "topic": key.topic, "partition": key.partition, "old": committed.get(key), "new": new,
            "change": None if key not in committed else new - committed[key],
        }
        for key, new in sorted(targets.items())
    ]  # fmt: skip
    words = {"beginning": "beginning", "end": "end", "offset": value, "time": f"@{value}"}
    shift = ["--shift", value] if way == "shift" else ["--to", words.get(way, "beginning")]
    topic = ["--topic", ask.text("topic")] if ask.text("topic") else []
    commands = () if way == "list" else (ask.command("group", "reset", name, *shift, *topic, "--execute"),)
    return Done(
        said("{count} partitions would move", count=sum(row["old"] != row["new"] for row in rows)),
        data={
            "partitions": rows,
            "lines": lines_of(targets),
            "was": lines_of({key: committed[key] for key in targets if key in committed}),
        },
        commands=commands,
    )


async def apply(ask: Ask) -> Done:
    """Move a group's offsets: lines `TOPIC:PARTITION:OFFSET`; was: where they have to be, or nothing is done"""
    name = ask.path["group"]
    lines = ask.fields.get("lines")
    text = "\n".join(map(str, lines)) if isinstance(lines, list) else ask.raw("lines") or ""
    targets = await _within(ask, parse_lines(text))
    if not targets:
        raise Refused(400, said("There is nothing to move"))
    before = {
        key: int(committed_offset.offset)
        for key, committed_offset in (await ask.admin.groups.offsets([name]))[name].items()
    }
    was = ask.raw("was")
    if was is not None and parse_lines(was) != {key: before[key] for key in targets if key in before}:
        raise Refused(
            409,
            said("The group's offsets have moved since the preview"),
            said("Stop the group's members, and look at the preview once more."),
        )
    results = await ask.admin.groups.alter_offsets(name, targets)
    results.require()
    old = lines_of({key: before[key] for key in targets if key in before})
    undo = f"/groups/{encoded(name)}/reset?to=list&lines={quote(old)}" if len(old) < 6_000 else ""
    return Done(
        said("The offsets of {count} partitions are moved", count=len(targets)),
        undo or f"/groups/{encoded(name)}",
        {"group": name, "before": old, "after": lines_of(targets)},
    )


async def delete(ask: Ask) -> Done:
    """Delete a group with its offsets; confirm: its name"""
    name = ask.path["group"]
    if ask.text("confirm") != name.strip():
        raise Refused(400, said("Not done: type {name} to confirm", name=name))
    (await ask.admin.groups.delete([name])).require()
    return Done(said("The group {name} is deleted", name=name), "/groups", {"group": name},
                (ask.command("group", "delete", name),))  # fmt: skip


def lines_of(offsets: Mapping[TopicPartition, int]) -> str:
    """One line per partition: TOPIC:PARTITION:OFFSET."""
    return "\n".join(f"{key.topic}:{key.partition}:{offset}" for key, offset in sorted(offsets.items()))


def parse_lines(text: str) -> dict[TopicPartition, int]:
    """What `lines_of` wrote. Raises Refused."""
    offsets: dict[TopicPartition, int] = {}
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > LINES_MAX:
        raise Refused(400, said("At most {count} partitions can be moved at once", count=LINES_MAX))
    for line in lines:
        parts = line.rsplit(":", 2)
        if len(parts) != 3 or not parts[1].isdecimal() or not parts[2].isdecimal() or not parts[0]:
            raise Refused(400, said("{line} is not TOPIC:PARTITION:OFFSET", line=line[:100]))
        offsets[TopicPartition(parts[0], int(parts[1]))] = int(parts[2])
    return offsets


async def _chosen(ask: Ask, committed: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    """The partitions to move: those of the topic, or all that have offsets."""
    topic = ask.text("topic")
    if not topic:
        return sorted(committed)
    mine = [key for key in committed if key.topic == topic]
    if mine:
        return sorted(mine)
    description = (await ask.admin.topics.describe([topic]))[topic]
    return [TopicPartition(topic, partition.number) for partition in description.partitions]


async def _bounds(ask: Ask, keys: Sequence[TopicPartition]) -> Mapping[TopicPartition, Bounds]:
    answer = await ask.admin.records.bounds(keys)
    for error in answer.failed.values():
        raise error
    return answer.done


async def _targets(
    ask: Ask, keys: Sequence[TopicPartition], committed: Mapping[TopicPartition, int], way: str, value: str
) -> dict[TopicPartition, int]:
    bounds = await _bounds(ask, keys)
    if way == "beginning":
        return {key: int(bounds[key].start) for key in keys}
    if way == "end":
        return {key: int(bounds[key].end) for key in keys}
    if way == "offset":
        at = ask.number("value", 0, 0, 1 << 62)
        return {key: min(max(at, bounds[key].start), bounds[key].end) for key in keys}
    if way == "shift":
        by = ask.number("value", 0, -(1 << 62), 1 << 62)
        return {
            key: min(max(committed[key] + by, bounds[key].start), bounds[key].end)
            for key in keys
            if key in committed
        }
    if way == "time":
        offsets = await ask.admin.records.offsets(dict.fromkeys(keys, _milliseconds(value)))
        return {
            key: int(bounds[key].end if place.offset is None else place.offset)
            for key, place in offsets.done.items()
        }
    raise Refused(400, said("{name} must be one of {choices}", name="to", choices=", ".join(WAYS)))


def _milliseconds(value: str) -> int:
    try:
        if value.isdecimal():
            return int(value)
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise Refused(
            400, said("{value} is not a time like 2026-01-31T12:00 (UTC)", value=value[:60])
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


async def _within(ask: Ask, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Offsets that lie in the logs. Raises Refused for others."""
    try:
        bounds = await _bounds(ask, list(wanted))
    except ClientError as error:
        raise Refused(400, said("{reason}", reason=str(error))) from None
    for key, offset in wanted.items():
        if not bounds[key].start <= offset <= bounds[key].end:
            raise Refused(
                400,
                said("{partition} holds the offsets {start} to {end}, not {offset}", partition=str(key),
                     start=bounds[key].start, end=bounds[key].end, offset=offset),
            )  # fmt: skip
    return dict(wanted)
