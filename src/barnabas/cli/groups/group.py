"""`barnabas group`: list, describe and delete consumer groups and share groups."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

import typer

from barnabas.admin import EARLIEST, LATEST, Admin, Group, TopicPartition
from barnabas.cli.admin import committed_of, report
from barnabas.cli.groups.share import SHARE, share_group_details
from barnabas.monitor.lag.model import GROUPS_OF_CONSUMERS
from barnabas.terminal.administering import administer, explain_error, saying
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK
from barnabas.terminal.options import AsJson, Bootstrap, Properties, Verbose
from barnabas.terminal.output import count_of, print_json, print_table, show_details
from barnabas.terminal.runner import example, new_app, say_error, say_missing
from barnabas.wire.errors import ErrorCode

app = new_app("List, describe, delete consumer groups; move their offsets.")

WORD_BORDER: Final = re.compile("(?<=[a-z])(?=[A-Z])")

Groups = Annotated[list[str], typer.Argument(metavar="GROUP", show_default=False)]


@app.command("list", epilog=example("barnabas group list"))
def list_groups(
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state", metavar="STATE", help="Only groups in this state, e.g. stable; may be repeated."
        ),
    ] = None,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """List the consumer groups and share groups with their state."""
    with administer(bootstrap, properties, verbose) as admin, saying("cannot list the groups"):
        listed = admin.groups.list().require()
    rows = [
        {"group": row.name, "state": state_word(row.state), "type": state_word(row.type)}
        for groups in listed.values()
        for row in groups
        if row.protocol_type in GROUPS_OF_CONSUMERS or row.type.lower() == SHARE
    ]
    rows.sort(key=lambda row: row["group"])
    if state:
        wanted = {word.lower() for word in state}
        rows = [row for row in rows if row["state"] in wanted]
    if json:
        print_json(rows)
    else:
        print_table(("GROUP", "STATE", "TYPE"), [list(row.values()) for row in rows])
    return EXIT_OK


def state_word(state: str) -> str:
    """A group's state or type in lower case; `-` when the broker does not say."""
    return WORD_BORDER.sub("-", state).lower() or "-"


@app.command(epilog=example("barnabas group describe billing", "barnabas group describe billing --members"))
def describe(
    groups: Groups,
    members: Annotated[
        bool, typer.Option("-m", "--members", help="Show the members and what each reads.")
    ] = False,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Show the offsets, the lag and the members of groups."""
    wanted, missing, failed = list(dict.fromkeys(groups)), [], False
    with administer(bootstrap, properties, verbose) as admin:
        details = share_group_details(admin, wanted)
        shares = {shown["group"] for shown in details}
        described = admin.groups.describe(name for name in wanted if name not in shares)
        for name in described:
            if name in described.done:
                details.append(detail(admin, described[name]))
            elif getattr(described.failed[name], "code", 0) == ErrorCode.GROUP_ID_NOT_FOUND:
                missing.append(name)
            else:
                say_error("barnabas group describe", f"{name}: {explain_error(described.failed[name])}")
                failed = True
        add_lag(admin, details)
    show_details(details, json, lambda shown: print_group(shown, members))
    code = say_missing("barnabas group describe", "group", missing)
    return EXIT_FAILED if failed else code


def add_lag(admin: Admin, details: list[dict[str, Any]]) -> None:
    """Give consumer groups their lag in records and in seconds; records are read where they are behind. Raises CliError."""
    consumer_groups = {shown["group"]: shown for shown in details if shown["type"] != SHARE}
    if not consumer_groups:
        return
    from barnabas.cli.groups.lag_now import looked, seconds_of

    look = looked(admin, list(consumer_groups))
    for group in look.groups:
        shown = consumer_groups[group.name]
        rows = {(row.partition.topic, row.partition.partition): row for row in group.partitions}
        for offsets in shown["offsets"]:
            row = rows.get((offsets["topic"], offsets["partition"]))
            if row is not None:
                offsets["lag"], offsets["lag_seconds"] = row.records, seconds_of(row.waiting_s(look.now_ms))
        shown["lag"] = sum(offsets["lag"] or 0 for offsets in shown["offsets"])
        shown["lag_seconds"] = seconds_of(group.waiting_s(look.now_ms))


def detail(admin: Admin, group: Group) -> dict[str, Any]:
    """All that `describe` shows of one group."""
    owners = {
        (part.topic, part.partition): member.client for member in group.members for part in member.assigned
    }
    offsets = offsets_of(admin, group.name, set(owners))
    return {
        "group": group.name,
        "state": state_word(group.state),
        "type": state_word(group.type),
        "assignor": group.assignor or None,
        "coordinator": group.coordinator.id,
        "lag": sum(row["lag"] or 0 for row in offsets),
        "never_read": sum(row["never_read"] or 0 for row in offsets),
        "offsets": [
            {**shown_row(row), "client": owners.get((row["topic"], row["partition"]))} for row in offsets
        ],
        "members": [
            {
                "member": member.id,
                "client": member.client,
                "instance": member.instance,
                "host": member.host,
                "partitions": [f"{part.topic}:{part.partition}" for part in member.assigned],
            }
            for member in group.members
        ],
    }


def offsets_of(admin: Admin, group: str, assigned: set[tuple[str, int]]) -> list[dict[str, Any]]:
    """Committed offset, end and lag of each partition that the group committed or reads."""
    committed = committed_of(admin, group)
    keys = sorted(assigned | set(committed))
    if not keys:
        return []
    end_of = positions(admin, keys, LATEST)
    # Records in partitions without a commit are not lag, but they are not nothing either.
    start_of = positions(admin, [key for key in keys if key not in committed], EARLIEST)
    return [offset_row(key, committed.get(key), start_of.get(key), end_of.get(key)) for key in keys]


def positions(admin: Admin, keys: list[tuple[str, int]], where: int) -> dict[tuple[str, int], int | None]:
    """First or next offsets of partitions; None for one whose topic was deleted: its offsets are still stored."""
    results = admin.records.offsets({TopicPartition(*key): where for key in keys})
    return {
        (key.topic, key.partition): results.done[key].offset if key in results.done else None
        for key in results
    }


def offset_row(
    key: tuple[str, int], committed: int | None, start: int | None, end: int | None
) -> dict[str, Any]:
    """One partition of a group; lag counts records, None when either side is not known.

    never_read: the records of a partition in which the group has committed nothing.
    """
    records = None if committed is None or end is None else max(end - committed, 0)
    return {
        "topic": key[0],
        "partition": key[1],
        "committed": committed,
        "end": end,
        "lag": records,
        "lag_seconds": None,
        "never_read": end - start if committed is None and start is not None and end is not None else None,
    }


def shown_row(row: dict[str, Any]) -> dict[str, Any]:
    """A partition's row without the column that is needed for the total only."""
    return {name: value for name, value in row.items() if name != "never_read"}


def print_group(shown: dict[str, Any], members: bool) -> None:
    """One group as text."""
    facts = [shown["state"], count_of(len(shown["members"]), "member"), f"lag {shown['lag']:,}"]
    if shown.get("lag_seconds"):
        facts[-1] += f" ({shown['lag_seconds']:,} s)"
    if shown.get("never_read"):
        facts.append(f"{shown['never_read']:,} never read")
    if shown["assignor"]:
        facts.append(f"assignor {shown['assignor']}")
    print(f"{shown['group']}: {', '.join(facts)}")
    if shown["offsets"]:
        print_table(
            [head.upper().replace("_", " ") for head in shown["offsets"][0]],
            [list(r.values()) for r in shown["offsets"]],
        )
    if members and shown["members"]:
        print_table(
            ("CLIENT", "HOST", "INSTANCE", "PARTITIONS"),
            [(m["client"], m["host"], m["instance"], m["partitions"]) for m in shown["members"]],
        )


@app.command(epilog=example("barnabas group delete billing"))
def delete(
    groups: Groups,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Delete groups without members, with their offsets."""
    with administer(bootstrap, properties, verbose) as admin:
        results = admin.groups.delete(groups)
    return report(results, "deleted", {}, "group delete", json, noun="group")
