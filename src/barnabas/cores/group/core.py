"""GroupCoordinatorCore: every group whose id hashes to one partition of the offsets topic.

How the broker drives it (`broker/coordinators/runtime.py`), awaiting nothing within a turn of the loop:

    decision = core.decide(event)          reads only
    append decision.entries                as one batch, transactional where decision.producer is set
    on success   core.apply(decision)      the entries are replayed; the state is what a restart would find
                 set the timers; send the replies once the high watermark covers the entries
    on failure   apply core.refuse(decision, error) instead: the request is answered with an error

Loading: `replay` every entry of the partition in order (`replay_marker` for control records), then append and apply each
decision of `on_loaded`; after that `decide` may be called. Whoever drops a core answers its waiting requests
(`event.refused`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from barnabas.cores.decision import (
    REFUSAL_FOR_APPEND_ERROR,
    Decision,
    Event,
    TimerFired,
    refusal_of,
    set_deadlines,
)
from barnabas.cores.group import (
    admin,
    deletion,
    lifecycle,
    moves,
    offsets,
    records,
    sweeps,
    timers,
)
from barnabas.cores.group.classic import join as classic_join
from barnabas.cores.group.classic import sync as classic_sync
from barnabas.cores.group.consumer import epochs
from barnabas.cores.group.consumer import heartbeat as consumer_heartbeat
from barnabas.cores.group.consumer.group import ConsumerGroup
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
    ForgetOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    SyncGroup,
    TimerKey,
    TopicsMatched,
)
from barnabas.cores.group.limits import GroupLimits
from barnabas.cores.group.moves import AdoptGroup, DisownGroup
from barnabas.cores.group.proposal import Proposal
from barnabas.cores.group.share import heartbeat as share_heartbeat
from barnabas.cores.group.share.events import (
    AlterShareOffsets,
    DeleteShareOffsets,
    DescribeShareGroup,
    ShareHeartbeat,
    ShareInitialized,
    ShareStatesLost,
)
from barnabas.cores.group.share.group import ShareGroup
from barnabas.cores.group.state import State, TopicInfo, Topics
from barnabas.cores.group.streams import describing as streams_describing
from barnabas.cores.group.streams import heartbeat as streams_heartbeat
from barnabas.cores.group.streams.events import DescribeStreamsGroup, StreamsHeartbeat
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.records_schemas.group_log import OffsetCommitKey

Decider = Callable[[Proposal, Any], None]

DECIDERS: Final[Mapping[type, Decider]] = {
    JoinGroup: classic_join.decide_join,
    SyncGroup: classic_sync.decide_sync,
    Heartbeat: classic_sync.decide_heartbeat,
    LeaveGroup: classic_sync.decide_leave,
    DescribeGroup: admin.decide_describe,
    ListGroups: admin.decide_list,
    DeleteGroup: deletion.decide_delete,
    CommitOffsets: offsets.decide_commit,
    FetchOffsets: offsets.decide_fetch,
    DeleteOffsets: offsets.decide_delete,
    EndTransaction: offsets.decide_end_transaction,
    ForgetOffsets: offsets.decide_forget,
    ExpireOffsets: offsets.decide_expire,
    TimerFired: timers.decide_timer,
    ConsumerHeartbeat: consumer_heartbeat.decide_consumer_heartbeat,
    TopicsMatched: epochs.decide_matched,
    ShareHeartbeat: share_heartbeat.decide_share_heartbeat,
    DescribeShareGroup: share_heartbeat.decide_describe_share,
    ShareInitialized: share_heartbeat.decide_initialized,
    ShareStatesLost: share_heartbeat.decide_states_lost,
    AlterShareOffsets: share_heartbeat.decide_alter_offsets,
    DeleteShareOffsets: share_heartbeat.decide_delete_offsets,
    StreamsHeartbeat: streams_heartbeat.decide_streams_heartbeat,
    DescribeStreamsGroup: streams_describing.decide_describe_streams,
    DescribeConsumerGroup: admin.decide_describe_consumer,
    AdoptGroup: moves.decide_adopt,
    DisownGroup: moves.decide_disown,
}


def _code_of(event: Event[object] | None, error: ErrorCode) -> ErrorCode:
    if type(event) is CommitOffsets and error in (
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
    ):
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return REFUSAL_FOR_APPEND_ERROR.get(error, error)


class GroupCoordinatorCore:
    """See the module."""

    def __init__(self, limits: GroupLimits | None = None) -> None:
        self.state = State(limits or GroupLimits())
        self.topology = -1
        """The version of the topics last passed to `set_topics`."""

    def set_limits(self, limits: GroupLimits) -> None:
        """Apply changed options; deadlines that are already set do not change."""
        self.state.limits = limits

    def set_group_limits(self, group_id: str, limits: GroupLimits | None) -> None:
        """Set limits for one group (configs of resource type GROUP); None restores the general limits."""
        if limits is None:
            self.state.group_limits.pop(group_id, None)
        else:
            self.state.group_limits[group_id] = limits

    def set_topics(self, topics: Mapping[str, TopicInfo]) -> None:
        """Set the existing topics. Groups notice changes at their members' next heartbeats. Not stored in the log."""
        self.state.topics = Topics(self.state.topics.version + 1, topics)

    def regexes_of(self, group_id: str) -> Mapping[str, frozenset[str]]:
        """The regular expressions that members of a group subscribe with, and what they have matched so far."""
        group = self.state.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return {}
        known = group.regexes
        return {
            regex: known[regex].topics if regex in known else frozenset() for regex in group.regex_members
        }

    def partitions_of(self, group_id: str, *, pending: bool) -> Sequence[tuple[str, int]]:
        """See State.partitions_of."""
        return self.state.partitions_of(group_id, pending=pending)

    def must_match(self, group_id: str, now_ms: int) -> bool:
        """Whether TopicsMatched has to be stepped: topics have to be matched against the expressions of a group."""
        return epochs.must_match(self.state, self.state.groups.get(group_id), now_ms)

    def keeps_share_state(self, group_id: str, topic_id: UUID, index: int) -> bool:
        """Whether a share group uses, or has requested, the state of a partition."""
        group = self.state.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            return False
        known = (group.initialized.get(topic_id), group.initializing.get(topic_id))
        return any(topic is not None and index in topic.partitions for topic in known)

    # --- serving

    def decide(self, event: Event[object]) -> Decision:
        """Decide on `event`. Only reads: nothing changes until the decision is applied.

        A stale TimerFired returns an empty Decision.
        """
        if type(event) is TimerFired and self.state.deadlines.get(event.key) != event.deadline_ms:
            return Decision(event)
        proposal = Proposal(self.state, event.now_ms)
        try:
            deletion.require_not_deleting(proposal, event)
            DECIDERS[type(event)](proposal, event)
        except ApiError as refusal:
            proposal = Proposal(self.state, event.now_ms)
            if refusal.code is ErrorCode.INVALID_REQUEST:
                # Clients that follow the protocol never send such a request: their authors will want to know the reason.
                proposal.note(
                    "an invalid request was refused",
                    request=type(event).__name__,
                    group=getattr(event, "group_id", ""),
                    member=getattr(event, "member_id", ""),
                    reason=refusal.message,
                )
            reply: Any = event.refused(refusal.code)
            if hasattr(reply, "message"):
                reply = replace(reply, message=refusal.message)
            proposal.reply(event.token, reply)
        return proposal.decision(event)

    def apply(self, decision: Decision) -> None:
        """The decision's entries are in the log: replay them, and remember what is not in the log.

        A group's entries were replayed into its draft when they were decided, since later parts of the decision build on
        them; the draft takes the group's place.
        """
        producer_id = -1 if decision.producer is None else decision.producer.producer_id
        for key, value, _ in decision.entries:
            if type(key) is OffsetCommitKey:
                records.replay_offset(self.state, key, value, producer_id)
        if decision.remember is not None:
            decision.remember()
        if type(decision.event) is EndTransaction:
            ended = decision.event
            records.replay_marker(self.state, ended.producer.producer_id, ended.committed)
        set_deadlines(self.state.deadlines, decision.timers)

    def refuse(self, decision: Decision, error: ErrorCode, now_ms: int) -> Decision:
        """What to apply instead of a decision whose entries could not be appended: it has not been made.

        Requests that were waiting before still wait; a timer that had fired fires again a little later.
        """
        retry_at_ms = now_ms + self.state.limits.retry_after_failed_append_ms
        return refusal_of(decision, _code_of(decision.event, error), retry_at_ms)

    # --- what concerns every group

    def topics_deleted(self, now_ms: int, topics: frozenset[str]) -> Iterator[ForgetOffsets | None]:
        """The events to step, one after the other, after topics have been deleted."""
        return sweeps.topics_deleted(self.state, now_ms, topics)

    def states_lost(self, now_ms: int) -> Iterator[ShareStatesLost]:
        """The events to step after the share coordinator has lost all states."""
        return sweeps.states_lost(self.state, now_ms)

    def expiry(self, now_ms: int) -> Iterator[ExpireOffsets]:
        """The events to step every offsets.retention.check.interval.ms."""
        return sweeps.expiry(self.state, now_ms)

    # --- loading and unloading

    @property
    def deadlines(self) -> Mapping[TimerKey, int]:
        """When each timer fires."""
        return self.state.deadlines

    def names(self) -> Iterable[str]:
        """The ids of the groups in this partition."""
        return self.state.groups.keys() | self.state.committed.keys()

    def replay(self, key: bytes, value: bytes | None, *, producer_id: int = -1) -> None:
        """Apply one entry of the log; `producer_id` is that of its batch if the batch is transactional.

        Entries of kinds that this version does not know are skipped, as in Kafka.
        Raises CorruptRecord when an entry of a known kind cannot be decoded.
        """
        entry = records.decode(key, value)
        if entry is not None:
            records.replay(self.state, *entry, producer_id)

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        """Apply an end-transaction marker of the log."""
        records.replay_marker(self.state, producer_id, committed)

    def on_loaded(self, now_ms: int) -> Iterator[Decision]:
        """Every member gets a full session timeout to report back; groups over the size limit rebalance."""
        for group_id in list(self.state.groups):
            proposal = Proposal(self.state, now_ms)
            lifecycle.on_loaded(proposal, self.state.groups[group_id])
            yield proposal.decision(None)

    def export(self, name: str, now_ms: int) -> Iterator[AdoptGroup]:
        """The events that recreate the group in another core. The first one contains everything but most of the offsets."""
        return moves.export(self.state, name, now_ms)

    def disown(self, name: str, now_ms: int) -> Iterator[DisownGroup]:
        """The events that remove the group here after another core has received it."""
        return moves.disown(self.state, name, now_ms)
