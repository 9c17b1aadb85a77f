"""kafka-transactions: shows open transactions, and ends those that hang."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Final

from barnabas.admin import Admin, ProducerState, TopicPartition, Transaction
from barnabas.client.errors import BrokerError, ClientError
from barnabas.kafka_tools.shared.common import ToolError, connect, parse, text_of
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Parsed, Refused, Tool
from barnabas.kafka_tools.shared.subcommands import need, print_columns, subcommand
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK
from barnabas.wire.errors import ErrorCode

PROGRAM: Final = "kafka-transactions"
MINUTE_MS: Final = 60_000
CHOICES: Final = {
    "list": "[--duration-filter MS] [--transactional-id-pattern REGEX]",
    "describe": "--transactional-id ID",
    "describe-producers": "--topic TOPIC --partition PARTITION [--broker-id ID]",
    "find-hanging": "[--broker-id ID] [--topic TOPIC [--partition PARTITION]] [--max-transaction-timeout MINUTES]",
    "abort": "--topic TOPIC --partition PARTITION (--start-offset OFFSET | --producer-id ID --producer-epoch EPOCH "
    "--coordinator-epoch EPOCH)",
    "forceTerminateTransaction": "--transactionalId ID",
}
TOOL: Final = Tool(
    "This tool is used to analyze the transactional state of producers in the cluster. It can be used to detect and "
    "recover from hanging transactions.\nCommands: " + ", ".join(CHOICES),
    (
        *COMMON,
        Opt("duration-filter", "list: only what runs longer than this.", "ms"),
        Opt("transactional-id-pattern", "list: only ids that match.", "regex"),
        Opt("transactional-id", "describe: the transactional id.", "id", aliases=("transactionalId",)),
        Opt("topic", "The topic.", "topic"),
        Opt("partition", "The partition.", "partition"),
        Opt("broker-id", "The broker to ask; default the leader.", "id"),
        Opt("max-transaction-timeout", "find-hanging: only what is older (default 15).", "minutes"),
        Opt("start-offset", "abort: where the transaction begins.", "offset"),
        Opt("producer-id", "abort: on brokers before 3.0.", "id"),
        Opt("producer-epoch", "abort: on brokers before 3.0.", "epoch"),
        Opt("coordinator-epoch", "abort: on brokers before 3.0.", "epoch"),
    ),
)
PRODUCER_HEADS: Final = (
    "ProducerId",
    "ProducerEpoch",
    "LatestCoordinatorEpoch",
    "LastSequence",
    "LastTimestamp",
    "CurrentTransactionStartOffset",
)

DETAIL: Final = ". Enable debug logging for additional detail."


def main(arguments: Sequence[str]) -> int:
    """Run one command; the exit code."""
    parsed = parse(TOOL, arguments)
    commands = {
        "list": (show_list, "list transactions"),
        "describe": (describe, f"describe transaction state of transactional-id `{parsed.get('transactional-id')}`"),
        "describe-producers": (show_producers, f"describe producers for partition {parsed.get('topic')}-"
                               f"{parsed.get('partition')}{on_broker(parsed)}"),
        "find-hanging": (find_hanging, "find hanging transactions"),
        "abort": (abort, f"abort transaction on partition {parsed.get('topic')}-{parsed.get('partition')}"),
        "forceTerminateTransaction": (terminate, "force terminate the transaction of transactional-id "
                                      f"`{parsed.get('transactional-id')}`"),
    }  # fmt: skip
    command, doing = commands[subcommand(PROGRAM, CHOICES, parsed)]
    try:
        command(parsed)
    except ClientError as error:
        print(f"Failed to {doing}: {text_of(error)}{DETAIL}", file=sys.stderr)
        return EXIT_FAILED
    return EXIT_OK


def on_broker(parsed: Parsed) -> str:
    """Which broker is asked, for an error; empty for the leader."""
    return f" on broker {parsed.text('broker-id')}" if "broker-id" in parsed else ""


def show_list(parsed: Parsed) -> None:
    """Every transactional id with its coordinator and state. Raises ClientError."""
    listed = connect(parsed).transactions.list(
        open_for_ms=parsed.number("duration-filter", -1) if "duration-filter" in parsed else None,
        pattern=parsed.get("transactional-id-pattern"),
    )
    rows = [
        (row.transactional_id, row.coordinator, row.producer_id, row.state)
        for listings in listed.require().values()
        for row in listings
    ]
    print_columns(("TransactionalId", "Coordinator", "ProducerId", "TransactionState"), rows)


def describe(parsed: Parsed) -> None:
    """One transactional id. Raises ToolError, ClientError."""
    need(PROGRAM, parsed, "transactional-id")
    description = described(connect(parsed), parsed.text("transactional-id"))
    now_ms = time.time_ns() // 1_000_000
    row = [
        description.coordinator.id if description.coordinator.id >= 0 else "-",
        description.transactional_id,
        description.producer_id,
        description.producer_epoch,
        description.state,
        description.timeout_ms,
        "None" if description.start_ms is None else description.start_ms,
        "None" if description.start_ms is None else now_ms - description.start_ms,
        ",".join(map(str, description.partitions)),
    ]
    heads = ("CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState",
             "TransactionTimeoutMs", "CurrentTransactionStartTimeMs", "TransactionDurationMs",
             "TopicPartitions")  # fmt: skip
    print_columns(heads, [row])


def described(admin: Admin, name: str) -> Transaction:
    """The state of one transactional id. Raises ToolError, ClientError."""
    try:
        return admin.transactions.describe([name])[name]
    except BrokerError as error:
        if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
    raise ToolError(
        f"Failed to describe transaction state of transactional-id `{name}`: DescribeTransactions request for "
        f"transactionalId `{name}` failed because the ID could not be found{DETAIL}"
    )


def show_producers(parsed: Parsed) -> None:
    """The producers that a partition remembers. Raises ClientError."""
    need(PROGRAM, parsed, "topic", "partition")
    broker = parsed.number("broker-id", -1) if "broker-id" in parsed else None
    rows = [
        (
            item.producer_id,
            item.producer_epoch,
            item.coordinator_epoch,
            item.last_sequence,
            item.last_timestamp_ms,
            "None" if item.transaction_start is None else item.transaction_start,
        )
        for item in producers(connect(parsed), key_of(parsed), broker)
    ]
    print_columns(PRODUCER_HEADS, rows)


def key_of(parsed: Parsed) -> TopicPartition:
    """The partition that --topic and --partition name."""
    return TopicPartition(parsed.text("topic"), parsed.number("partition", 0))


def producers(admin: Admin, key: TopicPartition, broker: int | None = None) -> Sequence[ProducerState]:
    """The producers of a partition, asked of its leader or of one broker. Raises ClientError."""
    return admin.transactions.producers([key], node=broker)[key]


def find_hanging(parsed: Parsed) -> None:
    """Open transactions that their coordinator knows nothing of. Raises ClientError, Refused."""
    if not {"topic", "broker-id"} & parsed.values.keys():
        raise Refused(
            "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search",
            False,
        )
    if "partition" in parsed and "topic" not in parsed:
        raise Refused("The --partition argument requires --topic as well", False)
    admin = connect(parsed)
    oldest_ms = parsed.number("max-transaction-timeout", 15) * MINUTE_MS
    now_ms = time.time_ns() // 1_000_000
    rows = [
        (
            *key,
            producer.producer_id,
            producer.producer_epoch,
            producer.coordinator_epoch,
            producer.transaction_start,
            producer.last_timestamp_ms,
            (now_ms - producer.last_timestamp_ms) // MINUTE_MS,
        )
        for key, producer in admin.transactions.hanging(
            searched(admin, parsed), now_ms=now_ms, open_for_ms=oldest_ms
        )
    ]
    heads = ("Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset", "LastTimestamp",
             "Duration(min)")  # fmt: skip
    print_columns(heads, rows)


def searched(admin: Admin, parsed: Parsed) -> list[TopicPartition]:
    """The partitions that find-hanging looks at."""
    broker, only = parsed.number("broker-id", -1), parsed.number("partition", -1)
    return [
        TopicPartition(name, part.number)
        for name, topic in admin.topics.list().items()
        for part in topic.partitions
        if parsed.get("topic") in (None, name) and only in (-1, part.number) and broker in (-1, part.leader)
    ]


def abort(parsed: Parsed) -> None:
    """Write an abort marker into one partition. Raises ToolError, Refused."""
    need(PROGRAM, parsed, "topic", "partition")
    by_id = {"producer-id", "producer-epoch", "coordinator-epoch"} <= parsed.values.keys()
    if "start-offset" not in parsed and not by_id:
        raise Refused(
            "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above) or "
            "with --producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)", False,
        )  # fmt: skip
    admin, key = connect(parsed), key_of(parsed)
    if "start-offset" in parsed:
        start = parsed.number("start-offset", 0)
        open_producers = [
            producer for producer in producers(admin, key) if producer.transaction_start == start
        ]
        if not open_producers:
            raise ToolError(
                f"Could not find any open transactions starting at offset {start} on partition {key}"
            )
        producer_id, producer_epoch = (
            int(open_producers[0].producer_id),
            int(open_producers[0].producer_epoch),
        )
        coordinator_epoch = int(open_producers[0].coordinator_epoch)
    else:
        producer_id, producer_epoch = parsed.number("producer-id", -1), parsed.number("producer-epoch", -1)
        coordinator_epoch = parsed.number("coordinator-epoch", -1)
    admin.transactions.abort(key, producer_id, producer_epoch, coordinator_epoch)


def terminate(parsed: Parsed) -> None:
    """Abort the open transaction of a transactional id, as a new producer with that id would. Raises ClientError."""
    need(PROGRAM, parsed, "transactional-id")
    connect(parsed).transactions.fence([parsed.text("transactional-id")]).require()
