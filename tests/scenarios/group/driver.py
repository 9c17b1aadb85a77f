"""A shard with its surroundings simulated: a log that can fail, timers, time, and reloading from the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from barnabas.cores.group import (
    Decision,
    EndTransaction,
    GroupCoordinatorCore,
    GroupLimits,
    TimerFired,
    TimerKey,
    TopicInfo,
    TopicsMatched,
)
from barnabas.cores.group.classic.group import ClassicGroup, ClassicState
from barnabas.cores.group.consumer.group import ConsumerGroup, MemberState
from barnabas.cores.group.consumer.topic_regex import compile_topic_regex
from barnabas.cores.group.share.group import ShareGroup
from barnabas.cores.group.streams.group import NO_TASKS, StreamsGroup
from barnabas.cores.group.streams.group import MemberState as StreamsMemberState
from barnabas.sim.coordinators import check_follows_log
from barnabas.wire.errors import ErrorCode


class Driver:
    """Steps events as the broker does and keeps what came out: `replies` by token, `notes`, `log`.

    After every step the state of the group is compared with that in a core that was fed with nothing but the log.
    """

    def __init__(self, limits: GroupLimits | None = None, now_ms: int = 1_000_000) -> None:
        self.limits = limits or GroupLimits()
        self.core = GroupCoordinatorCore(self.limits)
        self.replayed = GroupCoordinatorCore(self.limits)
        """Fed with nothing but the log."""
        self.now_ms = now_ms
        self.log: list[tuple[Any, ...]] = []
        self.timers: dict[TimerKey, int] = {}
        self.replies: list[tuple[Any, Any]] = []
        self.waiting: dict[Any, Any] = {}
        """The requests that have no answer yet, by token."""
        self.notes: list[Any] = []
        self.effects: list[Any] = []
        self.fail_next: ErrorCode | None = None
        self.check_every_step = True
        self.topics: dict[str, TopicInfo] = {}
        self.next_topic_id = 0

    # --- the broker's part

    def step(self, event: Any) -> None:
        if event.token is not None:
            self.waiting[event.token] = event
        before = repr(self.core.state) if self.check_every_step else ""
        decision = self.core.decide(event)
        if before:
            assert repr(self.core.state) == before, f"deciding on {event} has changed the state"
        appends = decision.entries or type(decision.event) is EndTransaction
        if appends and self.fail_next is not None:
            error, self.fail_next = self.fail_next, None
            decision = self.core.refuse(decision, error, self.now_ms)
        else:
            self._append(decision)
        self._take(decision)
        # All of it after the end of a transaction, which concerns any number of groups.
        names = [event.key.group_id] if type(event) is TimerFired else [getattr(event, "group_id", None)]
        check_follows_log(self.core, self.replayed, None if names == [None] else names)
        if self.check_every_step:
            self.check()

    def _append(self, decision: Decision) -> None:
        producer_id = decision.producer.producer_id if decision.producer else -1
        for key, value in decision.encoded():
            self.log.append(("record", key, value, producer_id))
            self.replayed.replay(key, value, producer_id=producer_id)
        if type(decision.event) is EndTransaction:
            ended = decision.event
            self.log.append(("marker", ended.producer.producer_id, ended.committed))
            self.replayed.replay_marker(ended.producer.producer_id, ended.committed)

    def _take(self, decision: Decision) -> None:
        self.core.apply(decision)
        for key, deadline_ms in decision.timers:
            if deadline_ms is None:
                self.timers.pop(key, None)
            else:
                self.timers[key] = deadline_ms
        self.replies.extend(decision.replies)
        for token, _ in decision.replies:
            self.waiting.pop(token, None)
        self.notes.extend(decision.notes)
        self.effects.extend(decision.effects)

    def sweep(self, pieces: Iterable[Any]) -> None:
        """What concerns every group, piece by piece."""
        for event in pieces:
            if event is not None:
                self.step(event)

    def advance(self, ms: int) -> None:
        """Let time pass; timers fire in order of their deadlines."""
        end_ms = self.now_ms + ms
        while self.fire_next(end_ms):
            pass
        self.now_ms = end_ms

    def fire_next(self, end_ms: int) -> bool:
        """Fire the first timer that is due by then; False when none is."""
        due = [(deadline, key) for key, deadline in self.timers.items() if deadline <= end_ms]
        if not due:
            return False
        deadline_ms, key = min(due)
        self.now_ms = max(self.now_ms, deadline_ms)
        del self.timers[key]
        self.step(TimerFired(self.now_ms, key, deadline_ms))
        return True

    def set_topics(self, **partitions: int) -> None:
        """Topics by name; the id of a topic stays as long as the topic is not deleted."""
        known = self.topics
        self.topics = {}
        for name, count in partitions.items():
            if name in known:
                self.topics[name] = known[name]._replace(partitions=count)
            else:
                self.next_topic_id += 1
                self.topics[name] = TopicInfo(UUID(int=self.next_topic_id), count)
        self.core.set_topics(self.topics)

    def matched(self, token: Any, group_id: str, sees: frozenset[str] | None = None) -> TopicsMatched:
        """What the broker finds after a heartbeat. sees: what the member may describe; None: everything."""
        names_by_regex = {
            text: compile_topic_regex(text).among(self.topics) for text in self.core.regexes_of(group_id)
        }
        if sees is not None:
            names_by_regex = {text: names & sees for text, names in names_by_regex.items()}
        return TopicsMatched(token, self.now_ms, group_id, self.topics, names_by_regex)

    def reload(self, core_limits: GroupLimits | None = None) -> None:
        """Lose the partition and load it again, as after a crash or a change of leader."""
        refused = [(token, event.refused(ErrorCode.NOT_COORDINATOR)) for token, event in self.waiting.items()]
        self.replies.extend(refused)
        self.waiting.clear()
        self.timers.clear()
        self.limits = core_limits or self.limits
        self.core = self.rebuilt()
        self.core.set_topics(self.topics)
        for decision in self.core.on_loaded(self.now_ms):
            self._take(decision)

    def rebuilt(self) -> GroupCoordinatorCore:
        core = GroupCoordinatorCore(self.limits)
        for kind, *rest in self.log:
            if kind == "record":
                key, value, producer_id = rest
                core.replay(key, value, producer_id=producer_id)
            else:
                core.replay_marker(*rest)
        return core

    def take_replies(self) -> list[tuple[Any, Any]]:
        taken, self.replies = self.replies, []
        return taken

    # --- checks

    def check(self) -> None:
        check_follows_log(self.core, self.rebuilt())
        armed = dict(self.core.state.deadlines)
        assert armed == self.timers, "the broker's timers are not those that the core armed"
        for group in self.core.state.groups.values():
            if isinstance(group, ClassicGroup):
                check_group(group, armed)
            elif isinstance(group, ConsumerGroup):
                check_consumer_group(group, armed)
            elif isinstance(group, StreamsGroup):
                check_streams_group(group, armed)
            else:
                check_share_group(group, armed)


def check_group(group: ClassicGroup, armed: dict[TimerKey, int]) -> None:
    """What holds for a classic group between any two events."""
    members = group.members
    assert (group.leader_id in members) if members else group.leader_id is None
    assert not (set(members) & group.pending_ids)
    assert group.pending_sync_ids <= set(members)
    assert group.static_ids == {m.group_instance_id: m.member_id for m in members.values() if m.is_static}
    group_timers = {key.kind for key in armed if key.group_id == group.group_id and not key.member_id}
    if group.state is ClassicState.EMPTY:
        assert not members
    if group.state is ClassicState.PREPARING_REBALANCE:
        assert group_timers & {"join", "initial"}, "a rebalance is prepared and nothing will end it"
    if group.state is ClassicState.COMPLETING_REBALANCE:
        assert "sync" in group_timers or not group.pending_sync_ids
        assert group.pending_sync_ids, "everybody synced and the group is not stable"
    for member_id, member in members.items():
        if member.join_token is not None:
            assert group.state is ClassicState.PREPARING_REBALANCE
        elif member.sync_token is not None:
            assert group.state is ClassicState.COMPLETING_REBALANCE
        else:
            assert TimerKey(group.group_id, member_id, "session") in armed, f"{member_id} may stay for ever"
    for member_id in group.pending_ids:
        assert TimerKey(group.group_id, member_id, "session") in armed, (
            f"pending {member_id} may stay for ever"
        )


def check_consumer_group(group: ConsumerGroup, armed: dict[TimerKey, int]) -> None:
    """What holds for a consumer group between any two events: above all that no partition has two owners."""
    owners: dict[Any, str] = {}
    for member in group.members.values():
        for partition in member.assigned | member.revoking:
            assert partition not in owners, (
                f"{partition} belongs to {owners[partition]} and {member.member_id}"
            )
            owners[partition] = member.member_id
        assert not (member.assigned & member.revoking)
        assert bool(member.revoking) == (member.state is MemberState.UNREVOKED_PARTITIONS)
        assert member.epoch <= group.target_epoch or member.state is MemberState.UNREVOKED_PARTITIONS
        assert TimerKey(group.group_id, member.member_id, "session") in armed, f"{member.member_id} may stay"
        if member.revoking:
            assert TimerKey(group.group_id, member.member_id, "revoke") in armed
    assert owners == group.owners
    assert group.regex_members == Counter(m.regex for m in group.members.values() if m.regex)
    assert group.regexes.keys() <= group.regex_members.keys()
    assert group.static_ids == {m.instance_id: m.member_id for m in group.members.values() if m.instance_id}
    assert set(group.target) <= set(group.members)
    assert group.target_epoch <= group.epoch


def check_streams_group(group: StreamsGroup, armed: dict[TimerKey, int]) -> None:
    """What holds for a streams group between any two events: no task is active twice, or twice in one process."""
    owners: dict[Any, str] = {}
    places: set[Any] = set()
    copies: set[Any] = set()
    for member in group.members.values():
        owned = member.assigned.plus(member.revoking)
        for task in owned.active:
            assert task not in owners, f"{task} is active twice"
            owners[task] = member.process_id
        for task in (*owned.active, *owned.standby, *owned.warmup):
            assert (task, member.process_id) not in places, f"{task} is in {member.process_id} twice"
            places.add((task, member.process_id))
        copies |= {(task, member.process_id) for task in owned.standby | owned.warmup}
        assert member.assigned.both(member.revoking) == NO_TASKS
        assert set(member.active_epochs) == owned.active
        assert all(epoch <= member.epoch or member.epoch <= 0 for epoch in member.active_epochs.values())
        assert (member.revoking != NO_TASKS) == (member.state is StreamsMemberState.UNREVOKED_TASKS)
        assert TimerKey(group.group_id, member.member_id, "session") in armed, f"{member.member_id} may stay"
        if member.revoking != NO_TASKS:
            assert TimerKey(group.group_id, member.member_id, "revoke") in armed
    assert owners == group.owners
    assert group.copies == copies
    assert group.static_ids == {m.instance_id: m.member_id for m in group.members.values() if m.instance_id}
    assert set(group.target) <= set(group.members)
    assert group.target_epoch <= group.epoch


def check_share_group(group: ShareGroup, armed: dict[TimerKey, int]) -> None:
    for member in group.members.values():
        assert TimerKey(group.group_id, member.member_id, "session") in armed
        assert member.epoch <= group.target_epoch <= group.epoch
        for topic_id, number in member.assigned:
            ready = group.initialized.get(topic_id)
            if member.epoch == group.epoch:
                assert ready is not None, "given out before its state exists"
                assert number in ready.partitions, "given out before its state exists"
    assert set(group.target) <= set(group.members)
