"""GroupCoordinatorCore: every group whose id hashes to one partition of the offsets topic.

How the broker drives it, with nothing awaited inside a turn:

    decisions = [core.step(event) for event in batch]
    offset = log.append(all their records, one batch; own batches where decision.producer is set)
    on success   arm the timers; give the replies out once the high watermark covers `offset`
    on failure   undone = core.abandon(decisions, error): the state is as before the batch, and every
                 request of the batch is answered with an error; arm undone.timers, give out undone.replies

Loading: `replay` every record of the partition in order (`replay_marker` for control records), then
`on_loaded` and `step` at will. Losing the partition: `unload` answers all who wait, then drop the core.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from barnabas.cores.group import (
    admin,
    classic_join,
    classic_sync,
    consumer_heartbeat,
    lifecycle,
    offsets,
    records,
    share_heartbeat,
)
from barnabas.cores.group.events import (
    CommitOffsets,
    ConsumerHeartbeat,
    DeleteGroup,
    DeleteOffsets,
    DescribeConsumerGroup,
    DescribeGroup,
    EndTransaction,
    ExpireOffsets,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    SyncGroup,
    Timer,
    TimerFired,
    TimerKey,
    TopicsDeleted,
)
from barnabas.cores.group.limits import GroupLimits
from barnabas.cores.group.share import ShareGroup
from barnabas.cores.group.share_events import (
    AlterShareOffsets,
    DeleteShareOffsets,
    DescribeShareGroup,
    ShareHeartbeat,
    ShareInitialized,
)
from barnabas.cores.group.state import State, TopicInfo, Topics, take_back
from barnabas.cores.group.turn import Decision, Turn
from barnabas.wire.errors import ApiError, ErrorCode

# What a client is told when the append of its change failed: it looks for the coordinator again or retries.
REFUSAL_FOR_APPEND_ERROR: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}

Decider = Callable[[Turn, Any], None]

DECIDERS: Final[Mapping[type, Decider]] = {
    JoinGroup: classic_join.decide_join,
    SyncGroup: classic_sync.decide_sync,
    Heartbeat: classic_sync.decide_heartbeat,
    LeaveGroup: classic_sync.decide_leave,
    DescribeGroup: admin.decide_describe,
    ListGroups: admin.decide_list,
    DeleteGroup: admin.decide_delete,
    CommitOffsets: offsets.decide_commit,
    FetchOffsets: offsets.decide_fetch,
    DeleteOffsets: offsets.decide_delete,
    EndTransaction: offsets.decide_end_transaction,
    TopicsDeleted: offsets.decide_topics_deleted,
    ExpireOffsets: offsets.decide_expire,
    TimerFired: lifecycle.decide_timer,
    ConsumerHeartbeat: consumer_heartbeat.decide_consumer_heartbeat,
    ShareHeartbeat: share_heartbeat.decide_share_heartbeat,
    DescribeShareGroup: share_heartbeat.decide_describe_share,
    ShareInitialized: share_heartbeat.decide_initialized,
    AlterShareOffsets: share_heartbeat.decide_alter_offsets,
    DeleteShareOffsets: share_heartbeat.decide_delete_offsets,
    DescribeConsumerGroup: admin.decide_describe_consumer,
}


def _refusal_of(event: Any, error: ErrorCode) -> ErrorCode:
    if type(event) is CommitOffsets and error in (
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
    ):
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return REFUSAL_FOR_APPEND_ERROR.get(error, error)


class GroupCoordinatorCore:
    def __init__(self, limits: GroupLimits | None = None) -> None:
        self.state = State(limits or GroupLimits())

    def set_limits(self, limits: GroupLimits) -> None:
        """New values of options; what runs already keeps its old deadlines."""
        self.state.limits = limits

    def set_group_limits(self, group_id: str, limits: GroupLimits | None) -> None:
        """Limits for one group alone (configs of resource type GROUP); None goes back to those of all."""
        if limits is None:
            self.state.group_limits.pop(group_id, None)
        else:
            self.state.group_limits[group_id] = limits

    def set_topics(self, topics: Mapping[str, TopicInfo]) -> None:
        """The topics that exist now. Groups notice at their members' next heartbeats. Not part of the log."""
        self.state.topics = Topics(self.state.topics.version + 1, topics)

    def keeps_share_state(self, group_id: str, topic_id: UUID, index: int) -> bool:
        """Whether a share group has, or has asked for, the state of a partition."""
        group = self.state.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            return False
        known = (group.initialized.get(topic_id), group.initializing.get(topic_id))
        return any(topic is not None and index in topic.partitions for topic in known)

    # --- serving

    def decide(self, event: Any) -> Turn:
        """What `event` wants. Reads only: nothing has happened until the Turn is applied."""
        turn = Turn(self.state, event.now_ms)
        try:
            DECIDERS[type(event)](turn, event)
        except ApiError as refusal:
            turn = Turn(self.state, event.now_ms)
            reply = event.refused(refusal.code)
            if hasattr(reply, "message"):
                reply = replace(reply, message=refusal.message)
            turn.reply(event.token, reply)
        return turn

    def step(self, event: Any) -> Decision:
        """Decide and apply one event. A stale TimerFired gives an empty Decision."""
        if type(event) is TimerFired and self.state.deadlines.get(event.key) != event.deadline_ms:
            return Decision(event)
        return self.decide(event).apply(event)

    def abandon(self, decisions: Sequence[Decision], error: ErrorCode, now_ms: int) -> Decision:
        """Take back steps whose records could not be appended: the newest of this core, in their order.

        Nothing of them has happened: requests that were waiting before still wait, the events' own requests
        are refused, and timers that had fired fire again a little later.
        """
        touched: set[TimerKey] = set()
        for decision in reversed(decisions):
            touched.update(timer.key for timer in decision.timers)
            take_back(decision.undo)
        replies = []
        for decision in decisions:
            event = decision.event
            if type(event) is TimerFired and event.key in self.state.deadlines:
                self.state.deadlines[event.key] = now_ms + self.state.limits.retry_after_failed_append_ms
                touched.add(event.key)
            elif event is not None and event.token is not None:
                replies.append((event.token, event.refused(_refusal_of(event, error))))
        timers = tuple(Timer(key, self.state.deadlines.get(key)) for key in sorted(touched))
        return Decision(replies=tuple(replies), timers=timers)

    # --- loading and unloading

    def replay(self, key: bytes, value: bytes | None, *, producer_id: int = -1) -> None:
        """Take over one record of the log; `producer_id` that of its batch where the batch is transactional.

        Records of kinds that this version does not know are skipped, as Kafka skips them.
        Raises records.CorruptRecord when a known kind cannot be decoded.
        """
        records.replay(self.state, key, value, producer_id)

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        """Take over an end-transaction marker of the log."""
        turn = Turn(self.state, 0)
        offsets.end_transaction(turn, producer_id, committed)
        turn.apply(None)

    def on_loaded(self, now_ms: int) -> Decision:
        """Every member gets a whole session to report back; groups over the size limit rebalance."""
        turn = Turn(self.state, now_ms)
        for group in list(self.state.groups.values()):
            lifecycle.on_loaded(turn, group)
        return turn.apply(None)

    def unload(self, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> Decision:
        """Answers for all who wait in this shard; the core is not to be used afterwards."""
        replies = lifecycle.refuse_all_waiting(list(self.state.groups.values()), error)
        timers = tuple(Timer(key, None) for key in self.state.deadlines)
        self.state = State(self.state.limits)
        return Decision(replies=replies, timers=timers)
