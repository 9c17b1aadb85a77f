"""The language of the group scenarios: one line, one thing that somebody does.

    > ada joins [group=g] [instance=i] [protocols=range,sticky] [topics=t,u] [session=10s] [v=3]
    > ada syncs ada=t-0,t-1 bob=t-2        what the leader gives to whom; followers name nobody
    > ada beats [generation=3] [member=x] | restarts | leaves | commits t-0=5:note | fetches t-0 [stable]
    > admin commits|fetches|removes i|deletes [t-0]|describes|lists|expires|drops topic
    > tx 7 by ada commits t-0=9 | tx 7 ends commit|abort
    > topics t=4 u=1                       the topics of the cluster, with their partitions
    > ada subscribes topics=t [regex=r] [assignor=range] [instance=i] [revoke=30s]     consumer protocol: join
    > ada polls [owns=t-0,t-1 | owns=nothing] [topics=u] [epoch=3] | pauses | quits
    > broker matches [late] [sees=t,u] | looks | hides    topics against expressions, after a heartbeat
    > ada shares topics=t | takes [epoch=3] | stops                          share groups: join, go on, leave
    > ada runs count [process=p] [instance=i] [at=host:80] | works [has=...] [epoch=3] | ends | fails   streams groups
    > coordinator initializes | reports | resets t-0 | forgets t             the share coordinator did its part
    > wait 10s | append fails ERROR | reload | limits name=value

Members are known by name; the ids that the coordinator gives out are the name and a running number, and
each member remembers its id and generation as a client does. Beneath a line stands what it led to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from barnabas.cores.group import (
    AlterShareOffsets,
    AlterShareReply,
    CommitOffsets,
    CommitReply,
    ConsumerDescribeReply,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DeleteGroup,
    DeleteOffsets,
    DeleteOffsetsReply,
    DeleteShareOffsets,
    DescribeConsumerGroup,
    DescribeGroup,
    DescribeReply,
    DescribeShareGroup,
    DescribeStreamsGroup,
    DoneReply,
    EndTransaction,
    FetchOffsets,
    FetchReply,
    Heartbeat,
    InitializeShareState,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    LeavingMember,
    ListGroups,
    ListReply,
    OffsetToCommit,
    Producer,
    ShareDescribeReply,
    ShareHeartbeat,
    ShareHeartbeatReply,
    ShareInitialized,
    StreamsDescribeReply,
    StreamsHeartbeatReply,
    SyncGroup,
    SyncReply,
)
from barnabas.cores.group.streams.group import NO_TASKS, Tasks
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records_schemas import consumer_protocol as protocol
from tests.scenarios.group.driver import Driver
from tests.scenarios.group.streams import StreamsStage

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(text: str) -> int:
    digits = text.rstrip("mshd")
    return int(digits) * UNITS_MS[text[len(digits) :]]


def partition_of(text: str) -> tuple[str, int]:
    topic, _, number = text.rpartition("-")
    return topic, int(number)


def subscription(topics: list[str], owned: str = "") -> bytes:
    """What a consumer puts into its JoinGroup; `owned` as in "t-0,t-1"."""
    message = protocol.ConsumerProtocolSubscription(topics=topics, owned_partitions=rows_of(owned))
    return message.encode_versioned(1)


def rows_of(names: str) -> list[protocol.TopicPartition]:
    rows: dict[str, list[int]] = {}
    for name in filter(None, names.split(",")):
        topic, number = partition_of(name)
        rows.setdefault(topic, []).append(number)
    return [protocol.TopicPartition(topic=topic, partitions=numbers) for topic, numbers in rows.items()]


def share(names: str) -> bytes:
    """What a leader gives to a member."""
    return protocol.ConsumerProtocolAssignment(assigned_partitions=rows_of(names)).encode_versioned(1)


def names_of(assignment: bytes) -> str:
    if not assignment:
        return "nothing"
    rows = protocol.ConsumerProtocolAssignment.decode_versioned(assignment).assigned_partitions
    return ",".join(f"{row.topic}-{number}" for row in rows for number in row.partitions) or "nothing"


@dataclass
class Person:
    """What a client remembers of itself."""

    name: str
    member_id: str = ""
    generation_id: int = -1
    instance: str | None = None
    epoch: int = 0
    assignment: str = "nothing"
    tasks: Tasks = NO_TASKS


class Stage(StreamsStage):
    def __init__(self) -> None:
        self.driver = Driver()
        self.people: dict[str, Person] = {}
        self.fresh = 0
        self.asked: list[InitializeShareState] = []

    def run(self, text: str) -> str:
        """The scenario with its results written anew; comments, blank lines and commands stay."""
        out: list[str] = []
        for line in text.splitlines():
            if line.startswith(">"):
                out.append(line)
                out.extend(f"    {result}" for result in self.do(line[1:].split()))
            elif not line.startswith("    "):
                out.append(line)
        return "\n".join(out) + "\n"

    def do(self, words: list[str]) -> list[str]:
        options = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        subject, verb = plain[0], plain[1] if len(plain) > 1 else ""
        handler = getattr(self, f"do_{subject}", None)
        if handler is not None:
            handler(plain[1:], options)
        else:
            person = self.people.setdefault(subject, Person(subject))
            getattr(self, f"do_member_{verb}")(person, plain[2:], options)
        return self.results()

    # --- members

    def do_member_joins(self, person: Person, rest: list[str], options: dict[str, str]) -> None:
        self.driver.step(self.join_event(person, options))

    def join_event(self, person: Person, options: dict[str, str]) -> JoinGroup:
        version = int(options.get("v", "9"))
        session_ms = duration_ms(options.get("session", "10s"))
        if "instance" in options:
            person.instance = options["instance"]
        self.fresh += 1
        topics = options.get("topics", "t").split(",")
        metadata = subscription(topics, options.get("owned", ""))
        return JoinGroup(
            token=f"{person.name} joins",
            now_ms=self.driver.now_ms,
            group_id=options.get("group", "g"),
            member_id=options.get("member", person.member_id),
            fresh_id=str(self.fresh),
            client_id=person.name,
            client_host="/127.0.0.1",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=duration_ms(options.get("rebalance", "1m")),
            protocol_type=options.get("type", "consumer"),
            protocols=tuple((name, metadata) for name in options.get("protocols", "range").split(",")),
            group_instance_id=person.instance,
            requires_member_id=version >= 4,
            can_skip_assignment=version >= 9,
        )

    def do_member_restarts(self, person: Person, rest: list[str], options: dict[str, str]) -> None:
        """A new process of the same client: it knows nothing of its former self but its instance id."""
        person.member_id, person.generation_id = "", -1
        self.do_member_joins(person, rest, options)

    def do_member_syncs(self, person: Person, rest: list[str], options: dict[str, str]) -> None:
        known = {"group", "generation", "type", "protocol", "member"}
        shares = {
            self.people[name].member_id: share(partitions)
            for name, partitions in options.items()
            if name not in known
        }
        self.driver.step(
            SyncGroup(
                f"{person.name} syncs",
                self.driver.now_ms,
                options.get("group", "g"),
                int(options.get("generation", person.generation_id)),
                options.get("member", person.member_id),
                shares,
                person.instance,
                options.get("type"),
                options.get("protocol"),
            )
        )

    def do_member_beats(self, person: Person, rest: list[str], options: dict[str, str]) -> None:
        self.driver.step(
            Heartbeat(
                f"{person.name} beats",
                self.driver.now_ms,
                options.get("group", "g"),
                int(options.get("generation", person.generation_id)),
                options.get("member", person.member_id),
                options.get("instance", person.instance),
            )
        )

    def do_member_leaves(self, person: Person, rest: list[str], options: dict[str, str]) -> None:
        leaving = LeavingMember(options.get("member", person.member_id), person.instance)
        self.driver.step(
            LeaveGroup(f"{person.name} leaves", self.driver.now_ms, options.get("group", "g"), (leaving,))
        )

    def do_member_commits(self, person: Person, rest: list[str], options: dict[str, str]) -> None:
        self.driver.step(self.commit_event(person, options))

    def commit_event(self, person: Person, options: dict[str, str]) -> CommitOffsets:
        offsets = tuple(
            OffsetToCommit(
                *partition_of(name), int(value.partition(":")[0]), metadata=value.partition(":")[2]
            )
            for name, value in options.items()
            if "-" in name
        )
        return CommitOffsets(
            f"{person.name} commits",
            self.driver.now_ms,
            options.get("group", "g"),
            offsets,
            int(
                options.get(
                    "generation", person.generation_id if person.generation_id >= 0 else person.epoch or -1
                )
            ),
            options.get("member", person.member_id),
            options.get("instance", person.instance),
            retention_ms=duration_ms(options["retention"]) if "retention" in options else -1,
            knows_member_epoch=int(options.get("v", "9")) >= 9,
        )

    def do_member_fetches(self, person: Person, rest: list[str], options: dict[str, str]) -> None:
        names = [word for word in rest if word != "stable"]
        self.driver.step(
            FetchOffsets(
                f"{person.name} fetches",
                self.driver.now_ms,
                options.get("group", "g"),
                tuple(partition_of(name) for name in names) if names else None,
                require_stable="stable" in rest,
            )
        )

    # --- members of the consumer protocol

    def do_member_subscribes(self, person: Person, rest: list[str], options: dict[str, str]) -> None:
        """Join, or join again, with epoch 0; a client of this protocol makes up its own id."""
        if not person.member_id:
            self.fresh += 1
            person.member_id = f"{person.name}-{self.fresh}"
        person.epoch = 0
        self.do_member_polls(person, rest, {"owns": "nothing", "revoke": "1m", **options})

    def do_member_polls(self, person: Person, rest: list[str], options: dict[str, str]) -> None:
        if "instance" in options:
            person.instance = options["instance"]
        self.driver.step(
            ConsumerHeartbeat(
                f"{person.name} polls",
                self.driver.now_ms,
                options.get("group", "g"),
                person.member_id,
                int(options.get("epoch", person.epoch)),
                person.name,
                "/127.0.0.1",
                None if "silent" in rest else person.instance,
                None,
                duration_ms(options["revoke"]) if "revoke" in options else -1,
                frozenset(options["topics"].split(",")) if "topics" in options else None,
                options.get("regex"),
                options.get("assignor"),
                self.owned(options["owns"]) if "owns" in options else None,
            )
        )

    def owned(self, text: str) -> frozenset[tuple[UUID, int]]:
        if text == "nothing":
            return frozenset()
        pairs = [partition_of(name) for name in text.split(",")]
        return frozenset((self.driver.topics[topic].topic_id, number) for topic, number in pairs)

    def names(self, assignment: frozenset[tuple[UUID, int]]) -> str:
        names = {info.topic_id: name for name, info in self.driver.topics.items()}
        shown = sorted(f"{names.get(topic_id, topic_id)}-{number}" for topic_id, number in assignment)
        return ",".join(shown) or "nothing"

    def do_member_pauses(self, person: Person, rest: list[str], options: dict[str, str]) -> None:
        """A static member goes away for a while."""
        self.do_member_polls(person, rest, {"epoch": "-2"})
        person.member_id = ""

    def do_member_quits(self, person: Person, rest: list[str], options: dict[str, str]) -> None:
        self.do_member_polls(person, rest, {**options, "epoch": "-1"})
        person.member_id = ""

    def do_topics(self, words: list[str], options: dict[str, str]) -> None:
        self.driver.set_topics(**{name: int(count) for name, count in options.items()})

    # --- members of share groups, and the share coordinator

    def do_member_shares(self, person: Person, rest: list[str], options: dict[str, str]) -> None:
        if not person.member_id:
            self.fresh += 1
            person.member_id = f"{person.name}-{self.fresh}"
        self.do_member_takes(person, rest, {"epoch": "0", **options})

    def do_member_takes(self, person: Person, rest: list[str], options: dict[str, str]) -> None:
        self.driver.step(
            ShareHeartbeat(
                f"{person.name} takes",
                self.driver.now_ms,
                options.get("group", "s"),
                person.member_id,
                int(options.get("epoch", person.epoch)),
                person.name,
                "/127.0.0.1",
                topics=frozenset(options["topics"].split(",")) if "topics" in options else None,
            )
        )

    def do_member_stops(self, person: Person, rest: list[str], options: dict[str, str]) -> None:
        self.do_member_takes(person, rest, {**options, "epoch": "-1"})
        person.member_id = ""

    def do_coordinator(self, words: list[str], options: dict[str, str]) -> None:
        group, now_ms, token = options.get("group", "s"), self.driver.now_ms, f"coordinator {words[0]}"
        if words[0] == "initializes":
            asked, self.asked = self.asked, []
            for effect in asked:
                topics = {effect.topic_id: effect.partitions}
                self.driver.step(ShareInitialized(token, now_ms, effect.group_id, topics))
        elif words[0] == "reports":
            self.driver.step(DescribeShareGroup(token, now_ms, group))
        elif words[0] == "resets":
            topic, number = partition_of(words[1])
            topics = {self.driver.topics[topic].topic_id: frozenset({number})}
            self.driver.step(AlterShareOffsets(token, now_ms, group, topics))
        else:
            gone = frozenset({self.driver.topics[words[1]].topic_id})
            self.driver.step(DeleteShareOffsets(token, now_ms, group, gone))

    def do_broker(self, words: list[str], options: dict[str, str]) -> None:
        """`looks` finds what expressions match, which `matches late` brings to the group when more has happened."""
        token, group = f"broker {words[0]}", options.get("group", "g")
        if words[0] == "hides":
            self.driver.core.state.hides_topics = True
            return
        if "late" not in words:
            sees = frozenset(options["sees"].split(",")) if "sees" in options else None
            self.found = self.driver.matched("broker matches", group, sees)
        if words[0] == "looks":
            return
        if "late" in words or self.driver.core.must_match(group, self.driver.now_ms):
            self.driver.step(replace(self.found, now_ms=self.driver.now_ms))
        else:
            self.driver.replies.append((token, "has nothing to match"))

    # --- administrators, transactions, surroundings

    def do_admin(self, words: list[str], options: dict[str, str]) -> None:
        verb, rest = words[0], words[1:]
        group, now_ms, token = options.get("group", "g"), self.driver.now_ms, f"admin {verb}"
        nobody = Person("admin")
        if verb == "commits":
            self.driver.step(self.commit_event(nobody, options))
        elif verb == "fetches":
            self.do_member_fetches(nobody, rest, options)
        elif verb == "describes":
            kind = DescribeConsumerGroup if "consumer" in rest else DescribeGroup
            kind = DescribeStreamsGroup if "streams" in rest else kind
            self.driver.step(kind(token, now_ms, group))
        elif verb == "lists":
            states = frozenset(options.get("states", "").split(",")) - {""}
            types = frozenset(options.get("types", "").split(",")) - {""}
            self.driver.step(ListGroups(token, now_ms, states, types))
        elif verb == "expires":
            self.driver.sweep(self.driver.core.expiry(now_ms))
            self.driver.replies.append((token, DoneReply()))
        elif verb == "drops":
            self.driver.sweep(self.driver.core.topics_deleted(now_ms, frozenset(rest)))
            self.driver.replies.append((token, DoneReply()))
        elif verb == "removes":
            leaving = tuple(LeavingMember("", instance) for instance in rest)
            self.driver.step(LeaveGroup(token, now_ms, group, leaving))
        elif rest:
            self.driver.step(DeleteOffsets(token, now_ms, group, tuple(partition_of(name) for name in rest)))
        else:
            self.driver.step(DeleteGroup(token, now_ms, group))

    def do_tx(self, words: list[str], options: dict[str, str]) -> None:
        producer = Producer(int(words[0]), 0)
        if words[1] == "ends":
            event = EndTransaction(f"tx {words[0]} ends", self.driver.now_ms, producer, words[2] == "commit")
            self.driver.step(event)
        else:
            name = words[2]
            commit = self.commit_event(self.people.get(name, Person(name)), options)
            self.driver.step(replace(commit, token=f"tx {words[0]} commits", producer=producer))

    def do_wait(self, words: list[str], options: dict[str, str]) -> None:
        self.driver.advance(duration_ms(words[0]))

    def do_append(self, words: list[str], options: dict[str, str]) -> None:
        self.driver.fail_next = ErrorCode[words[1]]

    def do_reload(self, words: list[str], options: dict[str, str]) -> None:
        self.driver.reload()

    def do_limits(self, words: list[str], options: dict[str, str]) -> None:
        changes = {name: int(value) for name, value in options.items()}
        self.driver.limits = replace(self.driver.limits, **changes)
        self.driver.core.set_limits(self.driver.limits)

    # --- results

    def results(self) -> list[str]:
        lines = []
        notes, self.driver.notes = self.driver.notes, []
        for note in notes:
            fields = " ".join(f"{name}={_plain(value)}" for name, value in note.fields.items())
            lines.append(f"- {note.text}: {fields}")
        effects, self.driver.effects = self.driver.effects, []
        for effect in effects:
            if isinstance(effect, InitializeShareState):
                self.asked.append(effect)
            partitions = self.names(frozenset((effect.topic_id, number) for number in effect.partitions))
            lines.append(f"-> {type(effect).__name__} {effect.group_id} {partitions}")
        for token, reply in self.driver.take_replies():
            lines.append(f"{token}: {self.show(token, reply)}")
        return lines

    def show(self, token: str, reply: Any) -> str:
        if isinstance(reply, str):
            return reply
        error = reply.error
        if isinstance(reply, JoinReply):
            return self.show_join(token, reply)
        if isinstance(reply, SyncReply) and error is ErrorCode.NONE:
            return f"gets {names_of(reply.assignment)}"
        if isinstance(reply, LeaveReply) and reply.members:
            return ", ".join(f"{m.group_instance_id or m.member_id} {_ok(m.error)}" for m in reply.members)
        if isinstance(reply, CommitReply | DeleteOffsetsReply) and error is ErrorCode.NONE:
            return ", ".join(f"{p.topic}-{p.partition} {_ok(p.error)}" for p in reply.partitions)
        if isinstance(reply, FetchReply) and error is ErrorCode.NONE:
            return ", ".join(_offset(row) for row in reply.offsets) or "no offsets"
        if isinstance(reply, DescribeReply):
            members = "; ".join(
                f"{m.member_id}{f' ({m.group_instance_id})' if m.group_instance_id else ''}"
                f" has {names_of(m.assignment)}"
                for m in reply.members
            )
            return f"{_ok(error)} {reply.state} {reply.protocol_type}/{reply.protocol_name} [{members}]"
        if isinstance(reply, ConsumerHeartbeatReply | ShareHeartbeatReply):
            return self.show_consumer(token, reply)
        if isinstance(reply, StreamsHeartbeatReply | StreamsDescribeReply):
            return self.show_streams(token, reply)
        if isinstance(reply, ShareDescribeReply) and error is ErrorCode.NONE:
            sharers = "; ".join(f"{m.member_id} has {self.names(m.assignment)}" for m in reply.members)
            return f"{reply.state} {reply.group_epoch}/{reply.assignment_epoch} [{sharers}]"
        if isinstance(reply, AlterShareReply) and error is ErrorCode.NONE:
            return f"ok at epoch {reply.state_epoch}"
        if isinstance(reply, ConsumerDescribeReply):
            members = "; ".join(
                f"{m.member_id} at {m.member_epoch} has {self.names(m.assignment)} of {self.names(m.target)}"
                for m in reply.members
            )
            return f"{_ok(error)} {reply.state} {reply.group_epoch}/{reply.assignment_epoch} {reply.assignor} [{members}]"
        if isinstance(reply, ListReply):
            return ", ".join(f"{g.group_id} {g.group_type} {g.state}" for g in reply.groups) or "no groups"
        return _ok(error)

    def show_consumer(self, token: str, reply: ConsumerHeartbeatReply | ShareHeartbeatReply) -> str:
        person = self.people[token.split()[0]]
        if reply.error is not ErrorCode.NONE:
            return f"{reply.error.name} {reply.message}"
        person.epoch = reply.member_epoch
        if reply.assignment is None:
            return f"at epoch {reply.member_epoch}"
        person.assignment = self.names(reply.assignment)
        return f"at epoch {reply.member_epoch}, has {person.assignment}"

    def show_join(self, token: str, reply: JoinReply) -> str:
        person = self.people[token.split()[0]]
        if reply.error is ErrorCode.MEMBER_ID_REQUIRED:
            person.member_id = reply.member_id
            return f"MEMBER_ID_REQUIRED, is {reply.member_id}"
        if reply.error is not ErrorCode.NONE:
            if reply.error is ErrorCode.UNKNOWN_MEMBER_ID:
                person.member_id = ""
            return reply.error.name
        person.member_id, person.generation_id = reply.member_id, reply.generation_id
        members = ", ".join(m.member_id for m in reply.members)
        leads = f", leads [{members}]" if members else f", follows {reply.leader}"
        skip = ", keeps its assignment" if reply.skip_assignment else ""
        return (
            f"is {reply.member_id} in generation {reply.generation_id} ({reply.protocol_name}){leads}{skip}"
        )


def _ok(error: ErrorCode) -> str:
    return "ok" if error is ErrorCode.NONE else error.name


def _plain(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _offset(row: Any) -> str:
    if row.error is not ErrorCode.NONE:
        return f"{row.topic}-{row.partition} {row.error.name}"
    metadata = f":{row.metadata}" if row.metadata else ""
    return f"{row.topic}-{row.partition}={row.offset}{metadata}"
