"""Fetch (key 1), versions 0 to 3: stored batches as message sets, magic 0 before version 2 and magic 1 from then on.

These consumers know no sessions and no transactions: they see aborted records, as in Kafka. If there is a message, at
least one is returned, even when it is larger than the requested size; Kafka is stricter before version 3, and a consumer
with a small fetch size gets stuck there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from barnabas.broker.api.context import Context
from barnabas.broker.api.conversion import Converting, known_to_old_clients, message_set_of
from barnabas.broker.api.handlers.records.fetch import consumers_finder
from barnabas.broker.partitions.fetching import FetchWaiter, Reading
from barnabas.broker.partitions.partition import PartitionRead
from barnabas.cores.fetch import FetchPartition, FetchPlan
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData

MAGIC_1_FROM: Final = 2
CONVERTED_BYTES_MAX: Final = 8 << 20
"""Limit on converted records that one response holds in memory, since requests before version 3 set none. The same
amount is read from one partition at a time."""


class Answer(NamedTuple):
    """The answer for one partition; `next_offset` is where reading continues when `data` is empty."""

    read: PartitionRead
    error: int
    data: bytes
    next_offset: int


async def handle(context: Context, request: FetchRequest) -> FetchResponse:
    """Answers when `min_bytes` can be read, or after `max_wait_ms`; UNSUPPORTED_VERSION for partitions of topics that
    do not allow conversion.
    """
    wanted = [
        FetchPartition(
            topic.topic,
            asked.partition,
            asked.fetch_offset,
            min(asked.partition_max_bytes, CONVERTED_BYTES_MAX),
        )
        for topic in request.topics
        for asked in topic.partitions
    ]
    # Old consumers always name their partitions in the same order, and the bytes run out before the end of a
    # long list. So each request starts with another partition.
    first = context.correlation_id % max(len(wanted), 1)
    wanted = wanted[first:] + wanted[:first]
    loop = context.services.loop
    deadline_s = loop.time() + max(request.max_wait_ms, 0) / 1000
    while True:
        wait_ms = (deadline_s - loop.time()) * 1000
        reading = _reading(context, request, wanted)
        if not reading.read() and wait_ms > 0 and wanted:
            reading = await context.answer_of(FetchWaiter(loop, reading, int(wait_ms) + 1))
        answers = await _converted(context, reading.reads, min(request.max_bytes, CONVERTED_BYTES_MAX))
        hidden = any(answer.next_offset > answer.read.asked.fetch_offset for answer in answers)
        if not hidden or any(answer.data or answer.error for answer in answers):
            as_asked = len(answers) - first
            return _response(request, answers[as_asked:] + answers[:as_asked])
        # Everything that was read was transaction markers and batches emptied by compaction. The consumer has no way to
        # learn that it should continue behind them: after an empty answer it would ask for the same offset again, forever.
        # So the fetch continues from there on its behalf.
        wanted = [replace(answer.read.asked, fetch_offset=answer.next_offset) for answer in answers]


def _reading(context: Context, request: FetchRequest, wanted: list[FetchPartition]) -> Reading:
    services = context.services
    return Reading(
        FetchPlan(tuple(wanted), None, True),
        consumers_finder(context, zstd=False),
        min_bytes=request.min_bytes,
        max_bytes=min(request.max_bytes, services.fetch_bytes_max),
        read_committed=False,
    )


async def _converted(context: Context, reads: Sequence[PartitionRead], max_bytes: int) -> list[Answer]:
    answers: list[Answer] = []
    for read in reads:
        answers.append(await _one(context, read, max_bytes))
        max_bytes -= len(answers[-1].data)
    return answers


async def _one(context: Context, read: PartitionRead, left_bytes: int) -> Answer:
    asked, partition, stored = read.asked, read.partition, read.records
    if stored is None or partition is None or read.error or left_bytes <= 0:
        return Answer(read, read.error, b"", asked.fetch_offset)
    if not partition.config.message_downconversion_enable:
        return Answer(read, ErrorCode.UNSUPPORTED_VERSION, b"", asked.fetch_offset)
    magic = 1 if context.version >= MAGIC_1_FROM else 0
    max_bytes = min(asked.max_bytes, left_bytes)
    conversions = context.services.conversions
    try:
        messages = await conversions.run(
            len(stored),
            lambda: message_set_of(stored, magic, asked.fetch_offset, max_bytes),
            context.connection,
            packed=True,  # perhaps
        )
    except ApiError as error:
        return Answer(read, error.code, b"", asked.fetch_offset)
    if messages.data:
        who = Converting.by(context.client_id, context.connection.client_software, "down")
        conversions.count(who, messages.records, len(messages.data))
    return Answer(read, ErrorCode.NONE, messages.data, messages.next_offset)


def _response(request: FetchRequest, answers: list[Answer]) -> FetchResponse:
    in_order = iter(answers)
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[_partition(next(in_order)) for _ in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _partition(answer: Answer) -> PartitionData:
    return PartitionData(
        partition_index=answer.read.asked.partition,
        error_code=known_to_old_clients(answer.error),
        high_watermark=answer.read.high_watermark,
        aborted_transactions=None,
        records=answer.data,
    )
