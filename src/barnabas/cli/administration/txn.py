"""`barnabas txn`: transactions under way, and the end of those that hang."""

from __future__ import annotations

import time
from typing import Annotated, Any, Final

import typer

from barnabas.cli.direct import direct
from barnabas.kafka_tools.operations import transactions
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, CliError, UsageError
from barnabas.terminal.options import AsJson, Bootstrap, Properties
from barnabas.terminal.output import print_json, print_table
from barnabas.terminal.runner import example, new_app
from barnabas.wire.messages.list_transactions import ListTransactionsRequest

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
    request = ListTransactionsRequest(state_filters=state or [], duration_filter=longer_ms)
    with direct(bootstrap, properties) as admin:
        found = transactions.listed(admin, request)
    rows = [
        {"id": row.transactional_id, "state": row.transaction_state, "producer": row.producer_id, "coordinator": node}
        for node, row in sorted(found, key=lambda pair: str(pair[1].transactional_id))
    ]  # fmt: skip
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
    with direct(bootstrap, properties) as admin:
        rows = [_row(transactions.described(admin, name)) for name in ids]
    if json:
        print_json(rows)
    else:
        print_table(HEADS, [[*list(row.values())[:-1], ", ".join(row["partitions"])] for row in rows])
    return EXIT_OK


def _row(state: Any) -> dict[str, Any]:
    started_ms = state.transaction_start_time_ms
    return {
        "id": state.transactional_id,
        "state": state.transaction_state,
        "producer": state.producer_id,
        "epoch": state.producer_epoch,
        "timeout_ms": state.transaction_timeout_ms,
        "runs_ms": time.time_ns() // 1_000_000 - started_ms if started_ms >= 0 else None,
        "partitions": [f"{topic.topic}:{index}" for topic in state.topics for index in topic.partitions],
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
    with direct(bootstrap, properties) as admin:
        if name is not None:
            transactions.described(admin, name)  # InitProducerId would create an unknown id
            admin.client.init_producer_id(name)
            if json:
                print_json({"transactional_id": name, "result": "aborted"})
            else:
                print(f"aborted what {name} had under way; its producer is fenced")
            return EXIT_OK
        key = (str(topic), partition)
        found = [
            row for row in transactions.producers(admin, [key])[key] if row.current_txn_start_offset == start
        ]
        if not found:
            raise CliError(f"no transaction in {topic}:{partition} begins at offset {start}")
        row = found[0]
        transactions.write_abort(admin, key, row.producer_id, row.producer_epoch, row.coordinator_epoch)
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
    with direct(bootstrap, properties) as admin:
        topics = admin.topics()
        if topic is not None and topic not in topics:
            raise CliError(f"no topic {topic!r}; `barnabas topic list` shows what is there")
        keys = [
            (name, index)
            for name, found in topics.items()
            if topic in (None, name)
            for index in found.partitions
        ]
        hanging = transactions.find_open(admin, keys, older_ms)
    rows = [
        {
            "topic": row.key[0], "partition": row.key[1], "producer": row.producer.producer_id,
            "epoch": row.producer.producer_epoch, "start_offset": row.producer.current_txn_start_offset,
            "last_write_ms_ago": row.age_ms,
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
