"""Converts the share coordinator's events to the requests of its protocol (keys 83 to 87), and back.

A request concerns one group, and asks the same for any number of its share partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from barnabas.cores.group.share.partition import Delivery, StateBatch
from barnabas.cores.group.share.state import (
    NO_START_OFFSET,
    DeleteState,
    InitializeState,
    ReadState,
    ShareKey,
    ShareState,
    StateReply,
    SummarizeState,
    WriteState,
)
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from barnabas.wire.schema import Message, Struct

StateEvent: TypeAlias = InitializeState | ReadState | WriteState | DeleteState | SummarizeState

NO_EPOCH: Final = 0
"""The state epoch that stands for a missing state; real state epochs begin at 1."""
DELIVERIES: Final = frozenset(Delivery)


class Form(NamedTuple):
    """How one kind of event is represented in requests and answers.

    row: converts an event to a row of a request; event: the reverse. fill: puts a state into a row of the answer; state:
    the reverse, None when the answer contains none.
    """

    version: int
    request: type[Message]
    asked_topic: type[Struct]
    response: type[Message]
    answered_topic: type[Struct]
    answered: type[Struct]
    row: Callable[[Any], Struct]
    event: Callable[[ShareKey, Any], StateEvent]
    fill: Callable[[Any, ShareState], None] = lambda row, state: None
    state: Callable[[Any], ShareState | None] = lambda row: None


def request_of(events: Sequence[StateEvent]) -> tuple[Message, int]:
    """(request, version) for `events`, which are all of one kind and one group."""
    form = FORMS[type(events[0])]
    topics: dict[UUID, Any] = {}
    for event in events:
        assert event.key.group_id == events[0].key.group_id
        topic_id = event.key.topic_id
        topic = topics.setdefault(topic_id, form.asked_topic(topic_id=topic_id, partitions=[]))
        topic.partitions.append(form.row(event))
    request = form.request(group_id=events[0].key.group_id, topics=list(topics.values()))
    return request, form.version


def replies_of(kind: type[StateEvent], group_id: str, answer: Any) -> dict[ShareKey, StateReply]:
    """The reply for each share partition in an answer."""
    form = FORMS[kind]
    replies: dict[ShareKey, StateReply] = {}
    for topic in answer.results:
        for row in topic.partitions:
            error = ErrorCode(row.error_code)
            state = form.state(row) if error is ErrorCode.NONE else None
            replies[ShareKey(group_id, topic.topic_id, row.partition)] = StateReply(
                error, row.error_message, state
            )
    return replies


def events_of(request: Any) -> Iterator[tuple[ShareKey, StateEvent | ApiError]]:
    """The event for each share partition in a request, or the error with which it is refused; each partition once."""
    form = BY_REQUEST[type(request)]
    seen: set[ShareKey] = set()
    for topic in request.topics:
        for row in topic.partitions:
            key = ShareKey(request.group_id, topic.topic_id, row.partition)
            if key in seen:
                continue
            seen.add(key)
            try:
                if not key.group_id or key.partition < 0:
                    raise ApiError(
                        ErrorCode.INVALID_REQUEST, f"no share partition {key.partition} of {key.group_id!r}"
                    )
                yield key, form.event(key, row)
            except ApiError as error:
                yield key, error


def response_of(request: Any, replies: Mapping[ShareKey, StateReply]) -> Message:
    """The answer to a request."""
    form = BY_REQUEST[type(request)]
    topics: dict[UUID, Any] = {}
    for key, reply in replies.items():
        topic = topics.setdefault(key.topic_id, form.answered_topic(topic_id=key.topic_id, partitions=[]))
        row: Any = form.answered(partition=key.partition)
        topic.partitions.append(row)
        if reply.error is not ErrorCode.NONE:
            row.error_code, row.error_message = reply.error, reply.message
        else:
            form.fill(row, reply.state or ShareState(NO_EPOCH, 0, NO_START_OFFSET))
    return form.response(results=list(topics.values()))


def _batches(rows: Sequence[Any]) -> tuple[StateBatch, ...]:
    """The state batches of `rows`. Raises ApiError."""
    for row in rows:
        if not 0 <= row.first_offset <= row.last_offset or row.delivery_state not in DELIVERIES:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"offsets {row.first_offset} to {row.last_offset} in state {row.delivery_state} are malformed",
            )
    return tuple(
        StateBatch(row.first_offset, row.last_offset, Delivery(row.delivery_state), row.delivery_count)
        for row in rows
    )


def _batch_row(kind: type[Struct], batch: StateBatch) -> Any:
    return kind(
        first_offset=batch.first,
        last_offset=batch.last,
        delivery_state=batch.state,
        delivery_count=batch.delivery_count,
    )


def _write_row(event: WriteState) -> Struct:
    wire = write_share_group_state
    return wire.PartitionData(
        partition=event.key.partition,
        state_epoch=event.state_epoch,
        leader_epoch=event.leader_epoch,
        start_offset=event.start_offset,
        delivery_complete_count=event.delivery_complete_count,
        state_batches=[_batch_row(wire.StateBatch, batch) for batch in event.batches],
    )


def _write_event(key: ShareKey, row: write_share_group_state.PartitionData) -> WriteState:
    return WriteState(
        None,
        0,
        key,
        row.state_epoch,
        row.leader_epoch,
        row.start_offset,
        _batches(row.state_batches),
        row.delivery_complete_count,
    )


def _fill_read(row: read_share_group_state.PartitionResult, state: ShareState) -> None:
    row.state_epoch, row.start_offset = state.state_epoch, state.start_offset
    row.state_batches = [_batch_row(read_share_group_state.StateBatch, batch) for batch in state.batches]


def _read_state(row: read_share_group_state.PartitionResult) -> ShareState | None:
    """The state in an answer. Its leader epoch is not sent: it is that of the reader from now on."""
    if row.state_epoch == NO_EPOCH and row.start_offset == NO_START_OFFSET:
        return None
    return ShareState(row.state_epoch, -1, row.start_offset, _batches(row.state_batches))


def _fill_summary(row: read_share_group_state_summary.PartitionResult, state: ShareState) -> None:
    row.state_epoch, row.leader_epoch = state.state_epoch, state.leader_epoch
    row.start_offset, row.delivery_complete_count = state.start_offset, state.delivery_complete_count


def _summarized_state(row: read_share_group_state_summary.PartitionResult) -> ShareState | None:
    if row.state_epoch == NO_EPOCH and row.start_offset == NO_START_OFFSET:
        return None
    return ShareState(
        row.state_epoch,
        row.leader_epoch,
        row.start_offset,
        delivery_complete_count=row.delivery_complete_count,
    )


FORMS: Final[Mapping[type[StateEvent], Form]] = {
    InitializeState: Form(
        0,
        initialize_share_group_state.InitializeShareGroupStateRequest,
        initialize_share_group_state.InitializeStateData,
        initialize_share_group_state.InitializeShareGroupStateResponse,
        initialize_share_group_state.InitializeStateResult,
        initialize_share_group_state.PartitionResult,
        row=lambda event: initialize_share_group_state.PartitionData(
            partition=event.key.partition, state_epoch=event.state_epoch, start_offset=event.start_offset
        ),
        event=lambda key, row: InitializeState(None, 0, key, row.state_epoch, row.start_offset),
    ),
    ReadState: Form(
        0,
        read_share_group_state.ReadShareGroupStateRequest,
        read_share_group_state.ReadStateData,
        read_share_group_state.ReadShareGroupStateResponse,
        read_share_group_state.ReadStateResult,
        read_share_group_state.PartitionResult,
        row=lambda event: read_share_group_state.PartitionData(
            partition=event.key.partition, leader_epoch=event.leader_epoch
        ),
        event=lambda key, row: ReadState(None, 0, key, row.leader_epoch),
        fill=_fill_read,
        state=_read_state,
    ),
    WriteState: Form(
        1,
        write_share_group_state.WriteShareGroupStateRequest,
        write_share_group_state.WriteStateData,
        write_share_group_state.WriteShareGroupStateResponse,
        write_share_group_state.WriteStateResult,
        write_share_group_state.PartitionResult,
        row=_write_row,
        event=_write_event,
    ),
    DeleteState: Form(
        0,
        delete_share_group_state.DeleteShareGroupStateRequest,
        delete_share_group_state.DeleteStateData,
        delete_share_group_state.DeleteShareGroupStateResponse,
        delete_share_group_state.DeleteStateResult,
        delete_share_group_state.PartitionResult,
        row=lambda event: delete_share_group_state.PartitionData(partition=event.key.partition),
        event=lambda key, row: DeleteState(None, 0, key),
    ),
    SummarizeState: Form(
        1,
        read_share_group_state_summary.ReadShareGroupStateSummaryRequest,
        read_share_group_state_summary.ReadStateSummaryData,
        read_share_group_state_summary.ReadShareGroupStateSummaryResponse,
        read_share_group_state_summary.ReadStateSummaryResult,
        read_share_group_state_summary.PartitionResult,
        row=lambda event: read_share_group_state_summary.PartitionData(
            partition=event.key.partition, leader_epoch=-1
        ),
        event=lambda key, row: SummarizeState(None, 0, key),
        fill=_fill_summary,
        state=_summarized_state,
    ),
}
BY_REQUEST: Final[Mapping[type[Message], Form]] = {form.request: form for form in FORMS.values()}
