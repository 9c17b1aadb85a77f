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
from typing import Any, Final

from barnabas.cores.group import (
    classic_admin,
    classic_join,
    classic_rebalance,
    classic_sync,
    offsets,
    records,
)
from barnabas.cores.group.events import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    EndTransaction,
    ExpireOffsets,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    ListGroups,
    SyncGroup,
    SyncReply,
    Timer,
    TimerFired,
    TimerKey,
    TopicsDeleted,
)
from barnabas.cores.group.limits import GroupLimits
from barnabas.cores.group.state import State, take_back
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
    DescribeGroup: classic_admin.decide_describe,
    ListGroups: classic_admin.decide_list,
    DeleteGroup: classic_admin.decide_delete,
    CommitOffsets: offsets.decide_commit,
    FetchOffsets: offsets.decide_fetch,
    DeleteOffsets: offsets.decide_delete,
    EndTransaction: offsets.decide_end_transaction,
    TopicsDeleted: offsets.decide_topics_deleted,
    ExpireOffsets: offsets.decide_expire,
    TimerFired: classic_rebalance.decide_timer,
}


class GroupCoordinatorCore:
    def __init__(self, limits: GroupLimits | None = None) -> None:
        self.state = State(limits or GroupLimits())

    def set_limits(self, limits: GroupLimits) -> None:
        """New values of options; what runs already keeps its old deadlines."""
        self.state.limits = limits

    # --- serving

    def decide(self, event: Any) -> Turn:
        """What `event` wants. Reads only: nothing has happened until the Turn is applied."""
        turn = Turn(self.state, event.now_ms)
        try:
            DECIDERS[type(event)](turn, event)
        except ApiError as refusal:
            turn = Turn(self.state, event.now_ms)
            turn.reply(event.token, event.refused(refusal.code))
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
        refusal = REFUSAL_FOR_APPEND_ERROR.get(error, error)
        replies = []
        for decision in decisions:
            event = decision.event
            if type(event) is TimerFired and event.key in self.state.deadlines:
                self.state.deadlines[event.key] = now_ms + self.state.limits.retry_after_failed_append_ms
                touched.add(event.key)
            elif event is not None and event.token is not None:
                replies.append((event.token, event.refused(refusal)))
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
            classic_rebalance.on_loaded(turn, group)
        return turn.apply(None)

    def unload(self, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> Decision:
        """Answers for all who wait in this shard; the core is not to be used afterwards."""
        replies: list[tuple[Any, Any]] = []
        for group in self.state.groups.values():
            for member in group.members.values():
                if member.join_token is not None:
                    replies.append((member.join_token, JoinReply(error, member.member_id)))
                if member.sync_token is not None:
                    replies.append((member.sync_token, SyncReply(error)))
        timers = tuple(Timer(key, None) for key in self.state.deadlines)
        self.state = State(self.state.limits)
        return Decision(replies=tuple(replies), timers=timers)
