"""kafka-consumer-groups --reset-offsets and --delete-offsets."""

from __future__ import annotations

import csv
import io
import re
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from barnabas.admin import EARLIEST, LATEST, Admin, TopicPartition
from barnabas.client.errors import BrokerError
from barnabas.kafka_tools.groups.group_views import committed_offsets, print_table, read_group
from barnabas.kafka_tools.shared.common import ToolError, java_text, partition_ranges, say
from barnabas.kafka_tools.shared.parser import Parsed, Refused
from barnabas.terminal.offsets import datetime_ms

SPECIFICATIONS: Final = (
    ("to-earliest", "", "Reset offsets to earliest offset."),
    ("to-latest", "", "Reset offsets to latest offset."),
    ("to-offset", "Long: offset", "Reset offsets to a specific offset."),
    ("to-current", "", "Reset offsets to current offset."),
    ("to-datetime", "String: datetime", "Reset offsets to offset from datetime, 'YYYY-MM-DDThh:mm:ss.sss'."),
    ("by-duration", "String: duration", "Reset offsets by duration from now, 'PnDTnHnMnS'."),
    ("shift-by", "Long: number-of-offsets", "Shift the current offsets, by a positive or negative number."),
    ("from-file", "String: path to CSV file", "Reset offsets to values defined in a CSV file."),
)
DURATION: Final = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)
WARNING: Final = (
    "WARN: No action will be performed as the --execute option is missing. In a future major release, the default "
    "behavior of this command will be to prompt the user before executing the reset rather than doing a dry run. "
    "You should add the --dry-run option explicitly if you are scripting this command and want to keep the current "
    "default behavior without prompting."
)
RESETTABLE: Final = ("Empty", "Dead")

Plan = dict[TopicPartition, int]


def check(parsed: Parsed) -> None:
    """Raises Refused."""
    specifications = [name for name, _, _ in SPECIFICATIONS if name in parsed]
    if len(specifications) != 1:
        names = ", ".join(f"--{name}" for name, _, _ in SPECIFICATIONS)
        raise Refused(f"Option [reset-offsets] takes exactly one of these: {names}")
    if "dry-run" in parsed and "execute" in parsed:
        raise Refused("Option [reset-offsets] only accepts one of --execute and --dry-run")
    if "from-file" not in parsed and not {"topic", "all-topics"} & parsed.values.keys():
        raise Refused("One of the reset scopes should be defined: --all-topics, --topic.")


def reset(admin: Admin, parsed: Parsed, groups: Sequence[str]) -> None:
    """Plan new offsets and, with --execute, commit them. Raises ToolError, Refused."""
    if not {"execute", "dry-run"} & parsed.values.keys():
        say(WARNING)
    exported = []
    rows = []
    for group in groups:
        state = state_of(admin, group)
        if state not in RESETTABLE:
            say(f"\nError: Assignments can only be reset if the group '{group}' is inactive, "
                  f"but the current state is {state}.")  # fmt: skip
            continue
        plan = plan_reset(admin, parsed, group, len(groups) > 1)
        if "execute" in parsed:
            commit(admin, group, plan)
        order = sorted(plan, key=lambda key: (key[0], -key[1]))
        exported += [(group, *key, plan[key]) for key in order]
        rows += [[group, key[0], str(key[1]), str(plan[key])] for key in order]
    if "export" in parsed:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerows(exported if len(groups) > 1 else [row[1:] for row in exported])
        print(out.getvalue())
    else:
        print_table(["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"], [30, 30, 10, 15], rows)


def state_of(admin: Admin, group: str) -> str:
    """A group's state; a group that does not exist can be given offsets as well."""
    try:
        return read_group(admin, group).state
    except ToolError:
        return "Dead"


def plan_reset(admin: Admin, parsed: Parsed, group: str, many: bool) -> Plan:
    """The new offset of each partition in scope. Raises ToolError, Refused."""
    if "from-file" in parsed and not {"topic", "all-topics"} & parsed.values.keys():
        return in_log(admin, read_file(Path(parsed.text("from-file")), group, many))
    current = {key: committed.offset for key, committed in committed_offsets(admin, group).items()}
    keys = scope(admin, parsed, current)
    if "from-file" in parsed:
        wanted = read_file(Path(parsed.text("from-file")), group, many)
        return in_log(admin, {key: offset for key, offset in wanted.items() if key in keys})
    if "to-earliest" in parsed:
        return at_time(admin, keys, EARLIEST)
    if "to-latest" in parsed:
        return at_time(admin, keys, LATEST)
    if "to-offset" in parsed:
        return in_log(admin, dict.fromkeys(keys, parsed.number("to-offset", 0)))
    if "to-datetime" in parsed:
        return at_time(admin, keys, parse_datetime(parsed.text("to-datetime")))
    if "by-duration" in parsed:
        now_ms = time.time_ns() // 1_000_000
        return at_time(admin, keys, now_ms - parse_duration_ms(parsed.text("by-duration")))
    if "to-current" in parsed:
        missing = [key for key in keys if key not in current]
        return {**{key: current[key] for key in keys if key in current}, **at_time(admin, missing, LATEST)}
    missing = [key for key in keys if key not in current]
    if missing:
        raise ToolError(
            f"Cannot shift offset for partition {missing[0][0]}-{missing[0][1]} since there is no current committed offset"
        )
    shift = parsed.number("shift-by", 0)
    return in_log(admin, {key: current[key] + shift for key in keys})


def scope(admin: Admin, parsed: Parsed, current: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    """The partitions that --topic or --all-topics name. Raises ToolError, Refused."""
    if "all-topics" in parsed:
        return list(current)
    topics = admin.topics.list()
    keys: list[TopicPartition] = []
    for item in parsed.all("topic"):
        name, colon, numbers = item.partition(":")
        if name not in topics:
            raise ToolError(f"Topic '{name}' does not exist")
        wanted = partition_ranges(numbers) if colon else (part.number for part in topics[name].partitions)
        keys += [TopicPartition(name, number) for number in wanted]
    return keys


def at_time(admin: Admin, keys: Sequence[TopicPartition], time_ms: int) -> Plan:
    """First offset at or after a time; the end of the log when there is none."""
    if not keys:
        return {}
    offsets = offsets_at(admin, keys, time_ms)
    late = [key for key in keys if key not in offsets]
    if time_ms >= 0:
        for topic, partition in late:
            print(
                f"Warn: Partition {partition} from topic {topic} is empty. Falling back to latest known offset."
            )
    offsets |= offsets_at(admin, late, LATEST) if late else {}
    return {key: offsets[key] for key in keys}


def offsets_at(admin: Admin, keys: Sequence[TopicPartition], time_ms: int) -> Plan:
    """First offset at or after a time, where there is one. Raises ClientError."""
    rows = admin.records.offsets(dict.fromkeys(keys, time_ms)).require()
    return {key: int(row.offset) for key, row in rows.items() if row.offset is not None}


def in_log(admin: Admin, wanted: Plan) -> Plan:
    """Offsets cut to what each log holds, with Kafka's warnings."""
    starts, ends = at_time(admin, list(wanted), EARLIEST), at_time(admin, list(wanted), LATEST)
    plan = {}
    for key, offset in wanted.items():
        plan[key] = min(max(offset, starts[key]), ends[key])
        if plan[key] != offset:
            side = "lower than earliest" if offset < plan[key] else "higher than latest"
            say(f"WARN: New offset ({offset}) is {side} offset for topic partition {key[0]}-{key[1]}. "
                  f"Value will be set to {plan[key]}")  # fmt: skip
    return plan


def read_file(path: Path, group: str, many: bool) -> Plan:
    """topic,partition,offset rows, with the group before them when there are several. Raises ToolError."""
    plan = {}
    with path.open(newline="", encoding="utf-8") as source:
        for row in csv.reader(source):
            fields = [field.strip() for field in row]
            if not any(fields):
                continue
            if len(fields) == 4:
                if fields.pop(0) != group:
                    continue
            elif many:
                raise ToolError(f"{path}: with several groups each row is group,topic,partition,offset")
            try:
                plan[TopicPartition(fields[0], int(fields[1]))] = int(fields[2])
            except (IndexError, ValueError):
                raise ToolError(f"{path}: {','.join(row)!r} is not topic,partition,offset") from None
    return plan


def parse_datetime(text: str) -> int:
    """--to-datetime as ms since 1970; without a zone it is local time. Raises Refused."""
    try:
        return datetime_ms(datetime.fromisoformat(text))
    except ValueError:
        raise Refused(f"{text!r} is not YYYY-MM-DDThh:mm:ss.sss", False) from None


def parse_duration_ms(text: str) -> int:
    """An ISO duration in ms. Raises Refused."""
    match = DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise Refused(f"{text!r} is not PnDTnHnMnS, for example P1DT2H", False)
    days, hours, minutes = (int(group or 0) for group in match.groups()[:3])
    length = timedelta(days=days, hours=hours, minutes=minutes, seconds=float(match[4] or 0))
    return length // timedelta(milliseconds=1)


def commit(admin: Admin, group: str, plan: Plan) -> None:
    """Commit offsets for a group without members. Raises ToolError."""
    for (topic, partition), error in admin.groups.alter_offsets(group, plan).failed.items():
        raise ToolError(f"{topic}-{partition}: {java_text(error)}")


def delete(admin: Admin, parsed: Parsed) -> None:
    """Delete committed offsets of topics of one group. Raises ToolError."""
    group = parsed.text("group")
    keys = scope(admin, parsed, {})
    try:
        results = admin.groups.delete_offsets(group, keys)
    except BrokerError as error:
        raise ToolError(f"OffsetDeleteRequest completed with error: {java_text(error)}") from None
    if results.failed:
        say("\nError: Encountered some partition-level error, see the follow-up details.")
    else:
        print(f"Request succeeded for deleting offsets from group {group}.")
    rows = []
    for key in sorted(keys):
        failure = results.failed.get(key)
        status = f"Error: {java_text(failure)}" if failure else "Successful"
        rows.append([key.topic, str(key.partition), status])
    print_table(["TOPIC", "PARTITION", "STATUS"], [15, 10, 15], rows)
