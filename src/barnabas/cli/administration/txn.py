"""`barnabas txn`: transactions under way, and the end of those that hang."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from barnabas.admin import Admin, TopicPartition, Transaction
from barnabas.terminal.administering import administer, explain_error
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, CliError, UsageError
from barnabas.terminal.options import AsJson, Bootstrap, Properties
from barnabas.terminal.output import print_json, print_table
from barnabas.terminal.runner import example, new_app
from barnabas.wire.errors import ErrorCode

app = new_app("Show transactions, and end those that hang.")

HEADS: Final = ("TRANSACTIONAL ID", "STATE", "PRODUCER", "EPOCH", "TIME-OUT MS", "RUNS MS", "PARTITIONS")
HANGING_HEADS: Final = ("TOPIC", "PARTITION", "PRODUCER", "EPOCH", "START OFFSET", "LAST WRITE MS AGO")


@app.command("list", epilog=example("barnabas txn list --state Ongoing"))
def list_transactions(
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state", metavar="STATE", help="Only this state, as `list` shows it; may be repeated."
        ),
    ] = None,
    longer_ms: Annotated[
        int,
        typer.Option(
            "--older-than",
            "--longer-than",
            metavar="MS",
            help="Only transactions that have been open for longer.",
        ),
    ] = -1,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    json: AsJson = False,
) -> int:
    """List the transactional ids with their states."""
    with administer(bootstrap, properties) as admin:
        transactions = admin.transactions.list(
            states=state or [], open_for_ms=longer_ms if longer_ms >= 0 else None
        ).require()
    rows = [
        {"id": row.transactional_id, "state": row.state, "producer": row.producer_id, "coordinator": node}
        for node, listed in transactions.items()
        for row in listed
    ]
    rows.sort(key=lambda row: str(row["id"]))
    if json:
        print_json(rows)
    else:
        heads = ("TRANSACTIONAL ID", "STATE", "PRODUCER", "COORDINATOR")
        print_table(heads, [list(row.values()) for row in rows])
    return EXIT_OK


@app.command("describe", epilog=example("barnabas txn describe orders-1"))
def describe(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Transactional ids.")],
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    json: AsJson = False,
) -> int:
    """Show the open transaction of a transactional id."""
    with administer(bootstrap, properties) as admin:
        rows = [_row(state) for state in _described(admin, ids)]
    if json:
        print_json(rows)
    else:
        print_table(HEADS, [[*list(row.values())[:-1], ", ".join(row["partitions"])] for row in rows])
    return EXIT_OK


def _described(admin: Admin, ids: Sequence[str]) -> list[Transaction]:
    """Raises CliError naming the transactional id that cannot be described."""
    results = admin.transactions.describe(ids)
    for name, error in results.failed.items():
        if getattr(error, "code", 0) == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise CliError(f"{name}: no such transactional id; `barnabas txn list` shows what is there")
        raise CliError(f"{name}: {explain_error(error)}")
    return list(results.done.values())


def _row(state: Transaction) -> dict[str, Any]:
    return {
        "id": state.transactional_id,
        "state": state.state,
        "producer": state.producer_id,
        "epoch": state.producer_epoch,
        "timeout_ms": state.timeout_ms,
        "runs_ms": None if state.start_ms is None else time.time_ns() // 1_000_000 - state.start_ms,
        "partitions": [f"{part.topic}:{part.partition}" for part in state.partitions],
    }


@app.command("abort", epilog=example("barnabas txn abort orders-1"))
def abort(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="Abort the open transaction of this transactional id."),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option("-t", "--topic", metavar="TOPIC", help="The topic in which a transaction hangs."),
    ] = None,
    partition: Annotated[int, typer.Option("-p", "--partition", metavar="N", help="Its partition.")] = 0,
    start: Annotated[
        int | None,
        typer.Option(
            "--start-offset",
            metavar="OFFSET",
            help="The offset at which it begins, as find-hanging shows it.",
        ),
    ] = None,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    json: AsJson = False,
) -> int:
    """Abort a transaction and fence its producer, or end one that hangs in a partition."""
    if (name is None) == (topic is None or start is None):
        raise UsageError(
            "name a transactional id, or --topic, --partition and --start-offset of one that hangs"
        )
    with administer(bootstrap, properties) as admin:
        if name is not None:
            _described(admin, [name])  # fencing would create an unknown id
            admin.transactions.fence([name]).require()
            if json:
                print_json({"transactional_id": name, "result": "aborted"})
            else:
                print(f"aborted what {name} had under way; its producer is fenced")
            return EXIT_OK
        key = TopicPartition(str(topic), partition)
        producers = [
            row for row in admin.transactions.producers([key])[key] if row.transaction_start == start
        ]
        if not producers:
            raise CliError(f"no transaction in {topic}:{partition} begins at offset {start}")
        row = producers[0]
        admin.transactions.abort(key, row.producer_id, row.producer_epoch, row.coordinator_epoch)
    if json:
        print_json(
            {"topic": topic, "partition": partition, "producer_id": row.producer_id, "result": "aborted"}
        )
    else:
        print(f"aborted the transaction of producer {row.producer_id} in {topic}:{partition}")
    return EXIT_OK


@app.command("find-hanging", epilog=example("barnabas txn find-hanging --topic orders"))
def find_hanging(
    topic: Annotated[
        str | None, typer.Option("-t", "--topic", metavar="TOPIC", help="Look at this topic only.")
    ] = None,
    older_ms: Annotated[
        int,
        typer.Option(
            "--older-than",
            "--longer-than",
            metavar="MS",
            help="Only transactions that were written to so long ago.",
        ),
    ] = 900_000,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    json: AsJson = False,
) -> int:
    """Find transactions that hold up readers and that no coordinator will end. Exit code 1: there are some."""
    now_ms = time.time_ns() // 1_000_000
    with administer(bootstrap, properties) as admin:
        topics = admin.topics.list()
        if topic is not None and topic not in topics:
            raise CliError(f"no topic {topic!r}; `barnabas topic list` shows what is there")
        keys = [
            (name, part.number)
            for name, topic_info in topics.items()
            if topic in (None, name)
            for part in topic_info.partitions
        ]
        hanging = admin.transactions.hanging(keys, now_ms=now_ms, open_for_ms=older_ms)
    rows = [
        {
            "topic": row.partition.topic, "partition": row.partition.partition, "producer": row.producer.producer_id,
            "epoch": row.producer.producer_epoch, "start_offset": row.producer.transaction_start,
            "last_write_ms_ago": now_ms - row.producer.last_timestamp_ms,
        }
        for row in hanging
    ]  # fmt: skip
    if json:
        print_json(rows)
    elif rows:
        print_table(HANGING_HEADS, [list(row.values()) for row in rows])
    else:
        print("no transaction hangs")
    return EXIT_FAILED if rows else EXIT_OK
