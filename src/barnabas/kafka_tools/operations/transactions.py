"""kafka-transactions: shows open transactions, and ends those that hang."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from barnabas.client.blocking import TRANSACTION
from barnabas.client.errors import BrokerError, ClientError, UnknownTopic, UnsupportedByBroker
from barnabas.kafka_tools.common import Admin, ToolError, error_text, parse, unsupported_text
from barnabas.kafka_tools.operations.shared import need, print_columns, subcommand
from barnabas.kafka_tools.parser import COMMON, Opt, Parsed, Refused, Tool
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages import describe_producers, describe_transactions, list_transactions
from barnabas.wire.messages import write_txn_markers as markers

PROGRAM: Final = "kafka-transactions"
NO_OFFSET: Final = -1
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

Key = tuple[str, int]


class Open(NamedTuple):
    """A transaction that a partition still waits for."""

    key: Key
    producer: Any

    @property
    def age_ms(self) -> int:
        """Time since the producer's last record."""
        return time.time_ns() // 1_000_000 - int(self.producer.last_timestamp)


def main(arguments: Sequence[str]) -> int:
    """Run one command; the exit code."""
    parsed = parse(TOOL, arguments)
    commands = {
        "list": (show_list, "list transactions"),
        "describe": (describe, f"describe transaction state of transactional-id `{parsed.get('transactional-id')}`"),
        "describe-producers": (show_producers, f"describe producers for partition {parsed.get('topic')}-"
                               f"{parsed.get('partition')}"),
        "find-hanging": (find_hanging, "find hanging transactions"),
        "abort": (abort, f"abort transaction on partition {parsed.get('topic')}-{parsed.get('partition')}"),
        "forceTerminateTransaction": (terminate, "force terminate the transaction of transactional-id "
                                      f"`{parsed.get('transactional-id')}`"),
    }  # fmt: skip
    command, doing = commands[subcommand(PROGRAM, CHOICES, parsed)]
    try:
        command(parsed)
    except ClientError as error:
        text = unsupported_text(error) if isinstance(error, UnsupportedByBroker) else str(error)
        print(f"Failed to {doing}: {text}{DETAIL}", file=sys.stderr)
        return EXIT_FAILED
    return EXIT_OK


def show_list(parsed: Parsed) -> None:
    """Every transactional id with its coordinator and state. Raises ToolError."""
    admin = Admin.connect(parsed)
    request = list_transactions.ListTransactionsRequest(
        duration_filter=parsed.number("duration-filter", -1),
        transactional_id_pattern=parsed.get("transactional-id-pattern"),
    )
    rows = [
        (state.transactional_id, node, state.producer_id, state.transaction_state)
        for node, state in listed(admin, request)
    ]
    print_columns(("TransactionalId", "Coordinator", "ProducerId", "TransactionState"), rows)


def listed(admin: Admin, request: Any) -> list[tuple[int, Any]]:
    """The transactions of every coordinator. Raises ToolError."""
    found = []
    for node in sorted(admin.nodes()):
        answer = admin.node(node, request, list_transactions.ListTransactionsResponse)
        if answer.error_code:
            raise ToolError(f"Failed to list transactions: {error_text(answer.error_code)}{DETAIL}")
        found += [(node, state) for state in answer.transaction_states]
    return found


def describe(parsed: Parsed) -> None:
    """One transactional id. Raises ToolError."""
    need(PROGRAM, parsed, "transactional-id")
    admin, name = Admin.connect(parsed), parsed.text("transactional-id")
    state = described(admin, name)
    running = state.transaction_start_time_ms >= 0
    now_ms = time.time_ns() // 1_000_000
    parts = [f"{topic.topic}-{part}" for topic in state.topics for part in topic.partitions]
    address = admin.client.coordinator(name, TRANSACTION).address
    nodes = [node for node, (host, port) in admin.nodes().items() if f"{host}:{port}" == address]
    row = [
        nodes[0] if nodes else "-",
        state.transactional_id,
        state.producer_id,
        state.producer_epoch,
        state.transaction_state,
        state.transaction_timeout_ms,
        state.transaction_start_time_ms if running else "None",
        now_ms - state.transaction_start_time_ms if running else "None",
        ",".join(parts),
    ]
    heads = ("CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState",
             "TransactionTimeoutMs", "CurrentTransactionStartTimeMs", "TransactionDurationMs",
             "TopicPartitions")  # fmt: skip
    print_columns(heads, [row])


def described(admin: Admin, name: str) -> Any:
    """The state of one transactional id. Raises ToolError."""
    request = describe_transactions.DescribeTransactionsRequest(transactional_ids=[name])

    def ask() -> Any:
        connection = admin.client.coordinator(name, TRANSACTION)
        return connection.call(request, describe_transactions.DescribeTransactionsResponse)

    (state,) = admin.client.cluster.retry(ask).transaction_states
    if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise ToolError(
            f"Failed to describe transaction state of transactional-id `{name}`: DescribeTransactions request for "
            f"transactionalId `{name}` failed because the ID could not be found{DETAIL}"
        )
    if state.error_code:
        raise ToolError(
            f"Failed to describe transaction state of transactional-id `{name}`: {error_text(state.error_code)}{DETAIL}"
        )
    return state


def show_producers(parsed: Parsed) -> None:
    """The producers that a partition remembers. Raises ToolError."""
    need(PROGRAM, parsed, "topic", "partition")
    admin, key = Admin.connect(parsed), (parsed.text("topic"), parsed.number("partition", 0))
    broker = parsed.number("broker-id", -1)
    found = producers(admin, [key], broker if "broker-id" in parsed else None)
    rows = [
        (
            item.producer_id,
            item.producer_epoch,
            item.coordinator_epoch,
            item.last_sequence,
            item.last_timestamp,
            item.current_txn_start_offset if item.current_txn_start_offset >= 0 else "None",
        )
        for item in found[key]
    ]
    print_columns(PRODUCER_HEADS, rows)


def producers(admin: Admin, keys: Iterable[Key], broker: int | None = None) -> dict[Key, list[Any]]:
    """The active producers of partitions, asked of their leaders or of one broker. Raises ToolError."""
    cluster = admin.client.cluster
    by_node: dict[int, dict[str, list[int]]] = {}
    for topic, partition in keys:
        try:
            node = cluster.leader(topic, partition) if broker is None else broker
        except (UnknownTopic, BrokerError) as error:
            raise ToolError(
                f"Failed to describe producers for partition {topic}-{partition}: {error}"
            ) from None
        by_node.setdefault(node, {}).setdefault(topic, []).append(partition)
    found = {}
    for node, topics in by_node.items():
        rows = [
            describe_producers.TopicRequest(name=name, partition_indexes=parts)
            for name, parts in topics.items()
        ]
        request = describe_producers.DescribeProducersRequest(topics=rows)
        answer = admin.node(node, request, describe_producers.DescribeProducersResponse)
        for topic_row in answer.topics:
            for part in topic_row.partitions:
                if part.error_code:
                    raise ToolError(
                        f"Failed to describe producers for partition {topic_row.name}-{part.partition_index} on "
                        f"broker {node}: {error_text(part.error_code, part.error_message)}{DETAIL}"
                    )
                found[topic_row.name, part.partition_index] = list(part.active_producers)
    return found


def find_hanging(parsed: Parsed) -> None:
    """Open transactions that their coordinator knows nothing of. Raises ToolError, Refused."""
    if not {"topic", "broker-id"} & parsed.values.keys():
        raise Refused(
            "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search",
            False,
        )
    if "partition" in parsed and "topic" not in parsed:
        raise Refused("The --partition argument requires --topic as well", False)
    admin = Admin.connect(parsed)
    oldest_ms = parsed.number("max-transaction-timeout", 15) * MINUTE_MS
    hanging = find_open(admin, searched(admin, parsed), oldest_ms)
    rows = [
        (
            *row.key,
            row.producer.producer_id,
            row.producer.producer_epoch,
            row.producer.coordinator_epoch,
            row.producer.current_txn_start_offset,
            row.producer.last_timestamp,
            row.age_ms // MINUTE_MS,
        )
        for row in hanging
    ]
    heads = ("Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset", "LastTimestamp",
             "Duration(min)")  # fmt: skip
    print_columns(heads, rows)


def find_open(admin: Admin, keys: Iterable[Key], oldest_ms: int) -> list[Open]:
    """Transactions that have been open in partitions for longer than `oldest_ms` and that their coordinator does not
    know. Raises ToolError.
    """
    found = [
        Open(key, row)
        for key, rows in producers(admin, keys).items()
        for row in rows
        if row.current_txn_start_offset > NO_OFFSET
    ]
    return only_hanging(admin, [item for item in found if item.age_ms > oldest_ms])


def searched(admin: Admin, parsed: Parsed) -> list[Key]:
    """The partitions that find-hanging looks at."""
    broker, only = parsed.number("broker-id", -1), parsed.number("partition", -1)
    return [
        (name, number)
        for name, topic in admin.topics().items()
        for number, part in topic.partitions.items()
        if parsed.get("topic") in (None, name) and only in (-1, number) and broker in (-1, part.leader)
    ]


def only_hanging(admin: Admin, found: Sequence[Open]) -> list[Open]:
    """Those whose producer has no transaction on that partition any more. Raises ToolError."""
    if not found:
        return []
    ids = sorted({int(row.producer.producer_id) for row in found})
    request = list_transactions.ListTransactionsRequest(producer_id_filters=ids)
    names = {state.producer_id: state.transactional_id for _, state in listed(admin, request)}
    hanging = []
    for item in found:
        name = names.get(item.producer.producer_id)
        topics = described(admin, name).topics if name is not None else []
        if not any(topic.topic == item.key[0] and item.key[1] in topic.partitions for topic in topics):
            hanging.append(item)
    return hanging


def abort(parsed: Parsed) -> None:
    """Write an abort marker into one partition. Raises ToolError, Refused."""
    need(PROGRAM, parsed, "topic", "partition")
    by_id = {"producer-id", "producer-epoch", "coordinator-epoch"} <= parsed.values.keys()
    if "start-offset" not in parsed and not by_id:
        raise Refused(
            "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above) or "
            "with --producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)", False,
        )  # fmt: skip
    admin, key = Admin.connect(parsed), (parsed.text("topic"), parsed.number("partition", 0))
    if "start-offset" in parsed:
        start = parsed.number("start-offset", 0)
        found = [
            producer
            for producer in producers(admin, [key])[key]
            if producer.current_txn_start_offset == start
        ]
        if not found:
            raise ToolError(
                f"Could not find any open transactions starting at offset {start} on partition {key[0]}-{key[1]}"
            )
        producer_id, producer_epoch = found[0].producer_id, found[0].producer_epoch
        coordinator_epoch = found[0].coordinator_epoch
    else:
        producer_id, producer_epoch = parsed.number("producer-id", -1), parsed.number("producer-epoch", -1)
        coordinator_epoch = parsed.number("coordinator-epoch", -1)
    write_abort(admin, key, producer_id, producer_epoch, coordinator_epoch)


def write_abort(
    admin: Admin, key: Key, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> None:
    """Write an abort marker into a partition. Raises ToolError."""
    marker = markers.WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=False,
        topics=[markers.WritableTxnMarkerTopic(name=key[0], partition_indexes=[key[1]])],
        coordinator_epoch=max(coordinator_epoch, 0),
    )
    leader = admin.client.cluster.leader(*key)
    answer = admin.node(
        leader, markers.WriteTxnMarkersRequest(markers=[marker]), markers.WriteTxnMarkersResponse
    )
    for result in answer.markers[0].topics[0].partitions:
        if result.error_code:
            raise ToolError(
                f"Failed to abort transaction on partition {key[0]}-{key[1]}: {error_text(result.error_code)}{DETAIL}"
            )


def terminate(parsed: Parsed) -> None:
    """Abort the open transaction of a transactional id, as a new producer with that id would. Raises ClientError."""
    need(PROGRAM, parsed, "transactional-id")
    Admin.connect(parsed).client.init_producer_id(parsed.text("transactional-id"))
