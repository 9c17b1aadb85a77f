"""Each row of a micro-batch in its topic exactly once, whatever is killed in between.

A query has a name in its brokers, its prefix. Its tasks write under the transactional ids `<prefix>-<task>`; the driver has
the id `<prefix>`. A micro-batch is:

1. The driver begins (`open_batch`): it takes the id `<prefix>`, which fences an earlier driver, and reads what that one
   decided. What was decided and not carried out is carried out now.
2. Each task writes its rows in a transaction, with a marker in it: an offset of the group `<prefix>-<task>`, beside which
   the query and the number of the micro-batch stand. It does not commit, but tells the driver of its transaction.
3. The driver decides (`commit_batch`), in a transaction of its own: the group `<prefix>` gets an offset beside which all
   transactions of the micro-batch are listed. From here on the batch is in the topics, as far as readers may depend on it.
4. It commits the tasks' transactions. Afterwards Spark notes the batch in its checkpoint.

A driver that ends before step 3 leaves transactions that are aborted when it comes back, and the batch is written again. One
that ends later is continued by step 1 of the next: the listed transactions are committed, and the tasks of the repeated
batch find it done and write nothing, however many they are now. Only where a transaction of the list was aborted meanwhile
(transaction.timeout.ms has passed) its task writes its rows again and the others do not, as their markers say. This needs
the same division of rows among tasks: with another number of tasks, or of rows in one, the query fails with an error.

Whoever was fenced can decide nothing: a driver that was believed dead fails in step 3, and what its tasks wrote is aborted.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from barnabas.client.blocking import BlockingClient
from barnabas.client.errors import BrokerError, ClientError
from barnabas.client.transactions import Transactions, TxnProducer
from barnabas.pipelines.folders import local_path
from barnabas.pipelines.options import OptionError, SinkOptions
from barnabas.wire.errors import ErrorCode

log = logging.getLogger(__name__)

NOTE_BYTES_MAX: Final = 4_000
"""Kafka keeps 4,096 bytes beside an offset (offset.metadata.max.bytes)."""
TIMEOUT_MS: Final = 900_000
"""The longest that brokers allow unless told otherwise (transaction.max.timeout.ms): a micro-batch may take long."""
SHORT_TIMEOUT_MS: Final = 60_000
"""For brokers that allow less, where no option says how long."""


class SinkError(Exception):
    """The micro-batch cannot be written exactly once as the query is now; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch. query: the id in Spark's checkpoint."""

    query: str
    number: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """A task's transaction that waits for its commit. rows: what the task was given. place: a partition that it wrote to,
    with the offset after its last record there."""

    part: int
    producer: TxnProducer
    rows: int
    place: tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Decided:
    """The micro-batch that was decided last. rows: of the tasks whose transactions are committed, where some of the others
    are not; None: all are."""

    batch: Batch
    tasks: int
    rows: Mapping[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """What the driver gives its tasks for one micro-batch."""

    prefix: str
    timeout_ms: int
    owner: TxnProducer
    decided: Decided | None


@dataclass(frozen=True, slots=True)
class Part:
    """A task's share of a micro-batch as the driver hears of it. is_left_out: its rows were there before, from a batch
    whose other tasks write theirs again."""

    opened: Opened
    batch: Batch
    prepared: Prepared | None = None
    is_left_out: bool = False


# --- names ------------------------------------------------------------------------------------------------


def prefix_of(options: SinkOptions) -> str | None:
    """What a query's transactional ids begin with; None where nothing tells it from other queries."""
    if options.transactional_id is not None:
        return options.transactional_id
    if options.checkpoint is None:
        return None
    folder = local_path(options.checkpoint)
    if folder is None:
        return f"barnabas-{hashlib.sha256(options.checkpoint.encode()).hexdigest()[:32]}"
    try:
        return f"barnabas-{json.loads((folder / 'metadata').read_text())['id']}"
    except (OSError, ValueError, KeyError) as error:
        raise OptionError(
            f"checkpointLocation={options.checkpoint} cannot be read here ({error}): set kafka.transactional.id to a name "
            "that no other query has, or exactlyOnce to false"
        ) from error


def task_id(prefix: str, part: int) -> str:
    """A task's transactional id, and the group of its marker."""
    return f"{prefix}-{part}"


def _part_of(producer: TxnProducer) -> int:
    return int(producer.transactional_id.rpartition("-")[2])


# --- the driver -------------------------------------------------------------------------------------------

_settled: dict[str, str] = {}
"""Prefix -> the decision that this process has seen carried out to its end, and nothing was begun since."""


def open_batch(client: BlockingClient, prefix: str, timeout_ms: int | None) -> Opened:
    """Step 1, before any task of the micro-batch."""
    transactions = Transactions(client)
    known = _settled.pop(prefix, None)
    owner, timeout_ms = _begin(transactions, prefix, timeout_ms)
    note = _decision(transactions, prefix)
    if note is None:
        decided = None
        _fence(transactions, prefix)
    elif json.dumps(note) == known:
        decided = Decided(_batch(note), note["tasks"])
    else:
        decided = _settle(transactions, prefix, note, timeout_ms)
    return Opened(prefix, timeout_ms, owner, decided)


def _begin(transactions: Transactions, prefix: str, timeout_ms: int | None) -> tuple[TxnProducer, int]:
    """The driver's producer, with the time-out that the broker allows."""
    wanted = timeout_ms or TIMEOUT_MS
    try:
        return transactions.begin(prefix, wanted), wanted
    except BrokerError as error:
        if error.code != ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise
        if timeout_ms is not None:
            raise OptionError(
                f"kafka.transaction.timeout.ms={timeout_ms} is more than the brokers allow "
                "(their option transaction.max.timeout.ms)"
            ) from error
    return transactions.begin(prefix, SHORT_TIMEOUT_MS), SHORT_TIMEOUT_MS


def _batch(note: Mapping[str, Any]) -> Batch:
    return Batch(note["query"], note["batch"])


def _decision(transactions: Transactions, prefix: str) -> dict[str, Any] | None:
    """What was decided last, by any driver."""
    found = [note for text in transactions.notes(prefix) if (note := _read(text)) is not None]
    return max(found, key=lambda note: tuple(note["owner"]), default=None)


def _read(text: str) -> dict[str, Any] | None:
    try:
        note = json.loads(text)
    except ValueError:
        return None
    return note if isinstance(note, dict) and "query" in note and "batch" in note else None


def _settle(transactions: Transactions, prefix: str, note: Mapping[str, Any], timeout_ms: int) -> Decided:
    """Carries out what was decided, as far as it can be, and aborts all else that is under way."""
    listed = unpacked(prefix, note["prepared"])
    committed: Mapping[int, int] | None = None
    if listed is None:
        lost = [task_id(prefix, part) for part in range(note["tasks"])]
    else:
        lost = [error.transactional_id for error in transactions.end_all(listed, commit=True)]
    batch = _batch(note)
    if lost:
        # Fenced first, read afterwards: whatever an earlier driver still sends can commit none of them in between.
        for name in lost:
            transactions.begin(name, timeout_ms)
        committed = {}
        for part in range(note["tasks"]):
            rows = _marked(transactions, prefix, part, batch)
            if rows is not None:
                committed[part] = rows
        if listed is not None and all(_part_of(producer) in committed for producer in listed):
            committed = None
    _fence(transactions, prefix)
    return Decided(batch, note["tasks"], committed)


def _marked(transactions: Transactions, prefix: str, part: int, batch: Batch) -> int | None:
    """How many rows of a micro-batch a task has committed; None: it has not."""
    for text in transactions.notes(task_id(prefix, part)):
        note = _read(text)
        if note is not None and _batch(note) == batch:
            return int(note["rows"])
    return None


def _fence(transactions: Transactions, prefix: str) -> None:
    """Aborts what tasks have left under way: readers wait at it, and there may be fewer tasks now."""
    name_of_task = re.compile(re.escape(prefix) + r"-\d+")
    for name in transactions.open_ids(f"{prefix}-"):
        if name_of_task.fullmatch(name):
            transactions.begin(name, SHORT_TIMEOUT_MS)


def commit_batch(client: BlockingClient, parts: Sequence[Part], batch_number: int) -> None:
    """Steps 3 and 4, once all tasks are done. Raises SinkError, TransactionLost."""
    prepared = [part.prepared for part in parts if part.prepared is not None]
    if not parts:
        return
    opened, batch = parts[0].opened, parts[0].batch
    assert batch.number == batch_number
    decided = opened.decided
    if decided is not None and decided.batch == batch and decided.rows is not None:
        _check_same_tasks(decided, parts)
    if not prepared:
        return
    transactions = Transactions(client)
    topic, partition, end = prepared[0].place
    note = {
        "query": batch.query,
        "batch": batch.number,
        "tasks": len(parts),
        "owner": list(opened.owner[1:]),
        "prepared": packed(prepared),
    }
    text = json.dumps(note)
    transactions.add_offset(opened.owner, opened.prefix, (topic, partition), end, text)
    transactions.end(opened.owner, commit=True)
    lost = transactions.end_all([p.producer for p in prepared], commit=True)
    if lost:
        raise lost[0]
    _settled[opened.prefix] = json.dumps(json.loads(text))


def _check_same_tasks(decided: Decided, parts: Sequence[Part]) -> None:
    if len(parts) != decided.tasks:
        raise SinkError(
            f"micro-batch {decided.batch.number} was committed in part by {decided.tasks} tasks, whose other transactions "
            f"have timed out, and there are {len(parts)} tasks now: run the query with {decided.tasks} tasks until this "
            "batch is done"
        )


def abort_batch(client: BlockingClient, parts: Sequence[Part]) -> None:
    """After a micro-batch that failed: aborts what its tasks have written, unless it was decided."""
    prepared = [part.prepared for part in parts if part.prepared is not None]
    if not prepared:
        return
    transactions = Transactions(client)
    opened = parts[0].opened
    try:
        note = _decision(transactions, opened.prefix)
        if note is not None and note["owner"] == list(opened.owner[1:]):
            return  # the next driver commits the rest
        transactions.end_all([p.producer for p in prepared], commit=False)
    except ClientError as error:
        log.warning("transactions are left to the next start of the query", extra={"reason": str(error)})


# --- tasks ------------------------------------------------------------------------------------------------


def rows_before(opened: Opened, batch: Batch, part: int) -> int | None:
    """How many rows of a task are in the topics from an earlier run of the same micro-batch; None: it has to write them.
    -1: all that the batch has, by whichever task."""
    decided = opened.decided
    if decided is None or decided.batch != batch:
        return None
    return -1 if decided.rows is None else decided.rows.get(part)


def check_rows(opened: Opened, part: int, before: int, rows: int) -> None:
    """Raises SinkError when a task that leaves its rows out is not the one that wrote them."""
    if before not in (-1, rows):
        assert opened.decided is not None
        raise SinkError(
            f"task {part} of micro-batch {opened.decided.batch.number} has committed {before} rows before and has {rows} "
            "now: run the query with the options that it had, until this batch is done"
        )


def mark(
    transactions: Transactions,
    producer: TxnProducer,
    batch: Batch,
    part: int,
    rows: int,
    ends: Mapping[tuple[str, int], int],
) -> Prepared:
    """Puts the marker into a task's transaction, whose records are all acknowledged."""
    (topic, partition), end = min(ends.items())
    note = json.dumps({"query": batch.query, "batch": batch.number, "rows": rows})
    transactions.add_offset(producer, producer.transactional_id, (topic, partition), end, note)
    return Prepared(part, producer, rows, (topic, partition, end))


# --- the list of transactions beside an offset ------------------------------------------------------------


def packed(prepared: Sequence[Prepared]) -> str | None:
    """Tasks with their producer ids and epochs as text; None for more than there is room for, some 800."""
    rows = sorted((p.part, p.producer.producer_id, p.producer.epoch) for p in prepared)
    text = " ".join(f"{part}.{producer_id}.{epoch}" for part, producer_id, epoch in rows)
    short = base64.b85encode(zlib.compress(text.encode(), 9)).decode()
    return short if len(short) <= NOTE_BYTES_MAX - 200 else None


def unpacked(prefix: str, text: str | None) -> list[TxnProducer] | None:
    """The producers of `packed`."""
    if text is None:
        return None
    rows = zlib.decompress(base64.b85decode(text)).decode().split(" ")
    found = [[int(number) for number in row.split(".")] for row in rows]
    return [TxnProducer(task_id(prefix, part), producer_id, epoch) for part, producer_id, epoch in found]
