"""Writes each row of a micro-batch to its topic exactly once, whichever process is killed in between.

Each query has a prefix, which no other query has. Its driver has the transactional id `<prefix>`, and its tasks have
the ids `<prefix>-<task>`. A micro-batch has four steps:

1. The driver begins (`open_batch`): it begins a transaction with the id `<prefix>`, which fences an earlier driver, and
   reads that driver's last decision. If the decision has not been carried out completely, this is done now.
2. Each task writes its rows in a transaction together with a marker: an offset of the group `<prefix>-<task>`, with the
   query and the number of the micro-batch as metadata. It does not commit the transaction, but reports it to the
   driver.
3. The driver decides (`commit_batch`): in its own transaction it commits an offset of the group `<prefix>`, with the
   list of all transactions of the micro-batch as metadata. From now on the micro-batch is certain to be committed.
4. The driver commits the tasks' transactions. Afterwards Spark notes the batch in its checkpoint.

If a driver ends before step 3, its tasks' transactions are aborted by the next driver, and the batch is written again.
If it ends later, the next driver's step 1 commits the listed transactions; the tasks of the repeated batch find it done
and write nothing, even if their number has changed. If some of the listed transactions were aborted meanwhile
(transaction.timeout.ms has passed), only their tasks write their rows again; the markers show which tasks have
committed. This requires that rows are divided among the tasks as before: with another number of tasks, or of rows in a
task, the query fails with an error.

A fenced driver cannot decide anything: one that was only believed dead fails in step 3, and its tasks' rows are
aborted.
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
from barnabas.pipelines.spark.folders import local_path
from barnabas.pipelines.spark.topics.options import OptionError, SinkOptions
from barnabas.records.units import Offset, ProducerEpoch
from barnabas.wire.errors import ErrorCode

log = logging.getLogger(__name__)

NOTE_BYTES_MAX: Final = 4_000
"""Kafka accepts 4,096 bytes of metadata with an offset (offset.metadata.max.bytes)."""
TIMEOUT_MS: Final = 900_000
"""The longest timeout that brokers allow by default (transaction.max.timeout.ms), as a micro-batch may take long."""
SHORT_TIMEOUT_MS: Final = 60_000
"""The timeout for brokers that allow less, unless an option sets it."""


class SinkError(Exception):
    """The query as it is now cannot write the micro-batch exactly once; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch. query: the id in Spark's checkpoint."""

    query: str
    number: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """A task's transaction, ready to be committed. rows: how many the task received. place: a topic and partition that
    it wrote to, and the offset after its last record there."""

    part: int
    producer: TxnProducer
    rows: int
    place: tuple[str, int, Offset]


@dataclass(frozen=True, slots=True)
class Decided:
    """The micro-batch that was decided last. tasks: how many it had. rows: by task, for those whose transactions are
    committed, if some are not; None if all are committed."""

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
    """A task's report to the driver about its part of a micro-batch. prepared: None if it has written nothing.
    is_left_out: its rows were committed by an earlier run of the batch."""

    opened: Opened
    batch: Batch
    prepared: Prepared | None = None
    is_left_out: bool = False


# --- names ------------------------------------------------------------------------------------------------


def prefix_of(options: SinkOptions) -> str | None:
    """What a query's transactional ids begin with; None if it has neither checkpoint nor id to distinguish it from
    others.

    Raises OptionError when the checkpoint cannot be read.
    """
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
"""Prefix -> the decision that this process has carried out completely, if it has begun no micro-batch since."""


def open_batch(client: BlockingClient, prefix: str, timeout_ms: int | None) -> Opened:
    """Step 1, before any task of the micro-batch starts. timeout_ms: None: 15 min, or 1 min if brokers allow less.

    Raises OptionError when the brokers do not allow the timeout.
    """
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
    """Begins the driver's transaction; returns its producer, and the timeout that the brokers allow."""
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
    """The last decision of any driver; None if there is none."""
    notes = [note for text in transactions.notes(prefix) if (note := _read(text)) is not None]
    return max(notes, key=lambda note: tuple(note["owner"]), default=None)


def _read(text: str) -> dict[str, Any] | None:
    try:
        note = json.loads(text)
    except ValueError:
        return None
    return note if isinstance(note, dict) and "query" in note and "batch" in note else None


def _settle(transactions: Transactions, prefix: str, note: Mapping[str, Any], timeout_ms: int) -> Decided:
    """Carries out a decision as far as possible, and aborts all other open transactions of the query's tasks."""
    listed = unpacked(prefix, note["prepared"])
    committed: Mapping[int, int] | None = None
    if listed is None:
        lost = [task_id(prefix, part) for part in range(note["tasks"])]
    else:
        lost = [error.transactional_id for error in transactions.end_all(listed, commit=True)]
    batch = _batch(note)
    if lost:
        # Tasks are fenced before their markers are read, so that no late request of an earlier driver commits one
        # later.
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
    """How many rows of a micro-batch a task has committed; None if it has not committed."""
    for text in transactions.notes(task_id(prefix, part)):
        note = _read(text)
        if note is not None and _batch(note) == batch:
            return int(note["rows"])
    return None


def _fence(transactions: Transactions, prefix: str) -> None:
    """Aborts open transactions of tasks, which hold up readers. If there are fewer tasks now, none of them would do
    it."""
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
            f"micro-batch {decided.batch.number} was committed in part by {decided.tasks} tasks, whose other "
            f"transactions have timed out, but there are {len(parts)} tasks now: run the query with {decided.tasks} "
            "tasks until this batch is done"
        )


def abort_batch(client: BlockingClient, parts: Sequence[Part]) -> None:
    """Aborts the transactions of a failed micro-batch, unless it was decided. Errors are logged, not raised."""
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
    """How many rows the task has committed in an earlier run of the same micro-batch; None if it has to write them, -1
    if all rows of the micro-batch are committed, whichever task wrote them."""
    decided = opened.decided
    if decided is None or decided.batch != batch:
        return None
    return -1 if decided.rows is None else decided.rows.get(part)


def check_rows(opened: Opened, part: int, before: int, rows: int) -> None:
    """Raises SinkError unless a task that skips its rows has as many as it committed (`before`, see `rows_before`)."""
    if before not in (-1, rows):
        assert opened.decided is not None
        raise SinkError(
            f"task {part} of micro-batch {opened.decided.batch.number} has committed {before} rows in an earlier run, "
            f"but has {rows} now: run the query with its earlier options until this batch is done"
        )


def mark(
    transactions: Transactions,
    producer: TxnProducer,
    batch: Batch,
    part: int,
    rows: int,
    ends: Mapping[tuple[str, int], Offset],
) -> Prepared:
    """Adds the marker to a task's transaction, once all its records are acknowledged.

    ends: by topic and partition that it has written to, the offset after the last record.
    """
    (topic, partition), end = min(ends.items())
    note = json.dumps({"query": batch.query, "batch": batch.number, "rows": rows})
    transactions.add_offset(producer, producer.transactional_id, (topic, partition), end, note)
    return Prepared(part, producer, rows, (topic, partition, end))


# --- the list of transactions in an offset's metadata -----------------------------------------------------


def packed(prepared: Sequence[Prepared]) -> str | None:
    """Tasks with their producer ids and epochs as text; None for more than fit into the metadata, some 800."""
    rows = sorted((p.part, p.producer.producer_id, p.producer.epoch) for p in prepared)
    text = " ".join(f"{part}.{producer_id}.{epoch}" for part, producer_id, epoch in rows)
    short = base64.b85encode(zlib.compress(text.encode(), 9)).decode()
    return short if len(short) <= NOTE_BYTES_MAX - 200 else None


def unpacked(prefix: str, text: str | None) -> list[TxnProducer] | None:
    """The producers in a text made by `packed`."""
    if text is None:
        return None
    rows = zlib.decompress(base64.b85decode(text)).decode().split(" ")
    rows_of_numbers = [[int(number) for number in row.split(".")] for row in rows]
    return [
        TxnProducer(task_id(prefix, part), producer_id, ProducerEpoch(epoch))
        for part, producer_id, epoch in rows_of_numbers
    ]
