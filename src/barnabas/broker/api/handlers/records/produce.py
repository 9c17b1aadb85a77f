"""Produce (key 0), versions 3 to 13; legacy_produce.py handles older ones.

Since 7 zstd, 8 errors name records, 9 flexible, 10 names the new leader, 12 adds partitions to transactions
(see implicit.py), 13 topic ids. The record bytes are checked by their header, patched and appended; nothing is decoded.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Iterable, Iterator
from typing import TYPE_CHECKING

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.once import by_topic
from barnabas.broker.api.handlers.records.implicit import (
    IMPLICIT_FROM,
    Adding,
    Refusals,
    as_produce_knows_it,
    transactional_header,
)
from barnabas.broker.api.preparing import Prepared, prepare
from barnabas.broker.partitions.acknowledgement import Acknowledgement, all_ready
from barnabas.broker.partitions.batch_checks import NotPrepared, RecordsRefused
from barnabas.runtime.pace import TURN_MS_MAX, in_pieces
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.partitions.partition import Partition

TOPIC_IDS_FROM = 13
ZSTD_FROM = 7
ACKS_NONE = 0
ACKS_LEADER = 1
ACKS_ALL = -1
BATCHES_PER_LOOK = 32
"""After how many batches of a request the clock is looked at: writing to thousands of partitions takes more than a turn."""
ADMIN_CLIENT_ID = "__admin_client"
"""A client with this client id may write to internal topics (Kafka's AdminUtils.ADMIN_CLIENT_ID)."""

Pending = list[tuple[PartitionProduceResponse, Acknowledgement]]
"""Rows of the answer, each with the acknowledgement that it waits for."""
Unprepared = list[tuple[TopicProduceData, PartitionProduceData, PartitionProduceResponse]]
"""Records that must be prepared before the append (preparing.py), each with its row in the answer."""


def handle(
    context: Context, request: ProduceRequest
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    """A row for each partition, with the base offset or why its records are refused; nothing for acks=0, where a failure
    closes the connection. A future if records must be prepared, or wait for their acknowledgement.
    """
    if request.transactional_id is None:
        return _handle(context, request, {}, transactional=False)
    verify_only = context.version < IMPLICIT_FROM
    if verify_only and context.services.transactions.is_checked_here(request.transactional_id):
        return _handle(context, request, {}, transactional=True)
    refusals = _add_partitions(context, request, verify_only=verify_only)
    if isinstance(refusals, dict):
        return _handle(context, request, refusals, transactional=True)
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records:  # their buffer is borrowed for this turn only
                data.records = memoryview(bytearray(data.records))
    context.connection.keep_room()
    return _handle_later(context, request, refusals)


def _add_partitions(
    context: Context, request: ProduceRequest, *, verify_only: bool
) -> asyncio.Future[Refusals] | Refusals:
    """Why the coordinator refuses to add partitions to the transaction, or does not confirm that they were added."""
    adding = Adding(context, request.transactional_id or "", verify_only=verify_only)
    for topic in request.topic_data:
        for data in topic.partition_data:
            with contextlib.suppress(ApiError):  # it is refused later, when the records would be appended
                adding.look_at(find_partition(context, topic, data.index), data.records)
    return adding.ask()


async def _handle_later(
    context: Context, request: ProduceRequest, refusals: asyncio.Future[Refusals]
) -> ProduceResponse | None:
    answer = _handle(context, request, await refusals, transactional=True)
    if answer is None or isinstance(answer, ProduceResponse):
        return answer
    return await answer


def _handle(
    context: Context, request: ProduceRequest, refusals: Refusals, *, transactional: bool
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    acks, clock = request.acks, context.services.clock
    begun_ms, count, is_late = clock.monotonic_ms(), 0, False
    answer = ProduceResponse(responses=[])
    failed = False
    pending: Pending = []
    unprepared: Unprepared = []
    for topic, batches in _topics(request):
        if not batches:
            continue
        partitions = []
        for data in batches:
            count += 1
            if not count % BATCHES_PER_LOOK:
                is_late = is_late or clock.monotonic_ms() - begun_ms > TURN_MS_MAX
            if not transactional and transactional_header(data.records) is not None:
                result = refused(
                    data,
                    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                    "the batch belongs to a transaction; the request names no transactional id",
                )
            elif is_late:
                result = _put_off(topic, data, unprepared)
            else:
                try:
                    result = _append(context, topic, data, acks, pending, refusals)
                except NotPrepared:
                    result = _put_off(topic, data, unprepared)
            failed = failed or result.error_code != ErrorCode.NONE
            partitions.append(result)
        answer.responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=partitions)
        )
    if unprepared:
        context.connection.keep_room()
        return _append_prepared(context, request, answer, pending, unprepared, refusals, failed=failed)
    context.connection.release_room()
    return _answer(context, request, answer, pending, failed=failed)


def _answer(
    context: Context, request: ProduceRequest, answer: ProduceResponse, pending: Pending, *, failed: bool
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    if request.acks != ACKS_NONE:
        return acknowledged(answer, pending, request.timeout_ms) if pending else answer
    if failed:
        # As in Kafka: the only way to report an error to a producer with acks=0 is to close its connection, which makes
        # it ask for metadata again.
        context.connection.close("a produce request with acks=0 failed")
    return None


def _topics(request: ProduceRequest) -> Iterable[tuple[TopicProduceData, list[PartitionProduceData]]]:
    """The batches by topic. When a partition is named twice, its last batch counts, as in Kafka."""
    if len(request.topic_data) == 1 and len(request.topic_data[0].partition_data) == 1:
        return ((request.topic_data[0], request.topic_data[0].partition_data),)
    return by_topic(
        request.topic_data, lambda t: (t.name, t.topic_id), lambda t: t.partition_data, lambda p: p.index
    )


async def acknowledged(answer: ProduceResponse, pending: Pending, timeout_ms: int) -> ProduceResponse:
    """The answer, once every append in it is committed or has failed."""
    await all_ready([acknowledgement for _, acknowledgement in pending], timeout_ms)
    for result, acknowledgement in pending:
        if acknowledgement.error is not None:
            result.error_code = acknowledgement.error.code
            result.error_message = acknowledgement.error.message
            result.base_offset = result.log_append_time_ms = result.log_start_offset = -1
    return answer


def refused(data: PartitionProduceData, code: ErrorCode, message: str | None) -> PartitionProduceResponse:
    """The answer for a partition that refuses the records, with the error and its message."""
    return PartitionProduceResponse(
        index=data.index, error_code=code, base_offset=-1, log_append_time_ms=-1, log_start_offset=-1,
        error_message=message,
    )  # fmt: skip


def _put_off(
    topic: TopicProduceData, data: PartitionProduceData, unprepared: Unprepared
) -> PartitionProduceResponse:
    """A row of the answer that is filled once the records are prepared."""
    result = refused(data, ErrorCode.NONE, None)
    # The frame's buffer is borrowed for this turn only.
    data.records = memoryview(bytearray(data.records or b""))
    unprepared.append((topic, data, result))
    return result


async def _append_prepared(
    context: Context,
    request: ProduceRequest,
    answer: ProduceResponse,
    pending: Pending,
    unprepared: Unprepared,
    refusals: Refusals,
    *,
    failed: bool,
) -> ProduceResponse | None:
    """Append the records that had to be prepared, or to wait because the turn was long, and answer. Other requests of this
    connection wait meanwhile, so that a producer's batches stay in order."""
    outcomes: list[Prepared | ApiError] = []
    for begin in range(0, len(unprepared), BATCHES_PER_LOOK):
        some = unprepared[begin : begin + BATCHES_PER_LOOK]
        outcomes += await asyncio.gather(*(_prepared(context, topic, data) for topic, data, _ in some))
    rows = {id(result): result for _, _, result in unprepared}

    def append_all() -> Iterator[None]:
        for (topic, data, result), prepared in zip(unprepared, outcomes, strict=True):
            if isinstance(prepared, ApiError):
                rows[id(result)] = _refused_for(context, data, prepared)
            else:
                data.records = prepared.records
                rows[id(result)] = _append(context, topic, data, request.acks, pending, refusals, prepared)
            yield

    await in_pieces(asyncio.get_running_loop(), context.services.clock, append_all())
    for _, data, _ in unprepared:
        data.records = None
    unprepared.clear()
    outcomes.clear()
    context.connection.release_room()
    for topic_row in answer.responses:
        topic_row.partition_responses = [rows.get(id(row), row) for row in topic_row.partition_responses]
    failed = failed or any(row.error_code != ErrorCode.NONE for row in rows.values())
    done = _answer(context, request, answer, pending, failed=failed)
    return done if done is None or isinstance(done, ProduceResponse) else await done


async def _prepared(
    context: Context, topic: TopicProduceData, data: PartitionProduceData
) -> Prepared | ApiError:
    """The records as they can be appended, or why they are refused."""
    try:
        assert data.records is not None
        partition = find_partition(context, topic, data.index)
        return await prepare(context, partition, data.records)
    except ApiError as error:
        return error


def _append(
    context: Context,
    topic: TopicProduceData,
    data: PartitionProduceData,
    acks: int,
    pending: Pending,
    refusals: Refusals,
    prepared: Prepared | None = None,
) -> PartitionProduceResponse:
    """Raises NotPrepared, unless the records are prepared."""
    partition = None
    try:
        partition = find_partition(context, topic, data.index)
        if refusals and (partition.topic, data.index) in refusals:
            raise refusals[partition.topic, data.index]
        if acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
            raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}; 0, 1 and -1 (all) are allowed")
        appended = partition.append(
            data.records,
            acks_all=acks == ACKS_ALL,
            zstd_allowed=context.version >= ZSTD_FROM,
            schemas_checked=prepared is not None,
            converted_for=None if prepared is None else prepared.converted_for,
            may_take_long=prepared is not None,
        )
    except NotPrepared:
        raise
    except ApiError as error:
        if partition is not None:
            partition.failed_produces += 1
        return _refused_for(context, data, error)
    return accepted(data, appended, pending)


def _refused_for(context: Context, data: PartitionProduceData, error: ApiError) -> PartitionProduceResponse:
    answer = refused(data, as_produce_knows_it(error.code, context.version), error.message)
    if isinstance(error, RecordsRefused):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=error.message)
            for number in error.numbers
        ]
    return answer


def accepted(
    data: PartitionProduceData, appended: Acknowledgement, pending: Pending
) -> PartitionProduceResponse:
    """The answer for an append that was made; noted in `pending` if it must wait for the acknowledgement."""
    result = PartitionProduceResponse(
        index=data.index,
        error_code=ErrorCode.NONE,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=appended.log_start_offset,
    )
    if not appended.is_ready:
        pending.append((result, appended))
    return result


def find_partition(context: Context, topic: TopicProduceData, index: int) -> Partition:
    """The partition that a client writes to. Raises ApiError."""
    partitions = context.services.partitions
    name: str | None = topic.name
    if context.version >= TOPIC_IDS_FROM:
        name = partitions.name_of(topic.topic_id)
        if name is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic.topic_id}")
    partition = partitions.get(name or "", index)
    if partition is None:
        raise ApiError(
            partitions.why_missing(name or "", index), f"there is no {name}-{index} on this broker"
        )
    if partition.config.is_internal and context.client_id != ADMIN_CLIENT_ID:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} belongs to the broker; clients cannot write to it"
        )
    return partition
