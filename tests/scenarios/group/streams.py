"""The part of the scenarios' language that is about streams groups."""

from __future__ import annotations

from typing import Any, Final

from barnabas.cores.group import StreamsDescribeReply, StreamsHeartbeat, StreamsHeartbeatReply
from barnabas.cores.group.streams.group import NO_TASKS, Endpoint, TaskOffset, Tasks, TaskSet
from barnabas.cores.group.streams.topology import (
    CopartitionGroup,
    InternalTopic,
    Subtopology,
    Topology,
)
from barnabas.wire.errors import ErrorCode
from tests.scenarios.group.driver import Driver


def topology(*parts: Subtopology, epoch: int = 0) -> Topology:
    return Topology(epoch, parts)


COMPACTED: Final = (("cleanup.policy", "compact"),)
COUNT: Final = (
    Subtopology("0", ("lines",), repartition_sinks=("words",)),
    Subtopology(
        "1",
        repartition_sources=(InternalTopic("words"),),
        changelogs=(InternalTopic("counts", 0, 0, COMPACTED),),
    ),
)
JOIN: Final = Subtopology(
    "0",
    ("t", "u"),
    changelogs=(InternalTopic("joined", 0, 3),),
    copartition_groups=(CopartitionGroup((0, 1)),),
)
MIXED: Final = (
    Subtopology("0", ("t",), repartition_sinks=("by-key",)),
    Subtopology(
        "1",
        ("u",),
        changelogs=(InternalTopic("joined"),),
        repartition_sources=(InternalTopic("by-key"),),
        copartition_groups=(CopartitionGroup((0,), (), (0,)),),
    ),
)
TOPOLOGIES: Final = {
    "count": topology(*COUNT),
    "newer-count": topology(*COUNT, epoch=1),
    "join": topology(JOIN),
    "mixed": topology(*MIXED),
    "plain": topology(Subtopology("0", ("t",))),
    "stateful": topology(Subtopology("0", ("t",), changelogs=(InternalTopic("store"),))),
    "table": topology(Subtopology("0", ("t",), changelogs=(InternalTopic("t"),))),
    "fixed": topology(
        Subtopology("0", ("t",), repartition_sinks=("r",)),
        Subtopology(
            "1",
            ("u",),
            repartition_sources=(InternalTopic("r", 7),),
            copartition_groups=(CopartitionGroup((0,), (), (0,)),),
        ),
    ),
    "circle": topology(
        Subtopology("0", ("t",), repartition_sinks=("a",)),
        Subtopology(
            "1", repartition_sources=(InternalTopic("a"), InternalTopic("b")), repartition_sinks=("b",)
        ),
    ),
    "orphan": topology(Subtopology("0", ("t",), repartition_sources=(InternalTopic("nobodys"),))),
    "twice": topology(Subtopology("0", ("t",)), Subtopology("0", ("u",))),
    "sourceless": topology(Subtopology("0")),
    "wrong-index": topology(Subtopology("0", ("t",), copartition_groups=(CopartitionGroup((1,)),))),
    "numbered-changelog": topology(Subtopology("0", ("t",), changelogs=(InternalTopic("store", 3),))),
    "expression": topology(Subtopology("0", ("t",), (".*",))),
}


def tasks_of(text: str) -> Tasks:
    """`0_0,0_1/1_0`: active, then standby, then warm-up tasks; `nothing`."""
    kinds = [_set_of(part) for part in text.split("/")] if text != "nothing" else []
    return Tasks(*kinds)


def _set_of(text: str) -> TaskSet:
    pairs = (name.rsplit("_", 1) for name in text.split(",") if name)
    return frozenset((part, int(number)) for part, number in pairs)


def show(tasks: Tasks) -> str:
    if tasks == NO_TASKS:
        return "nothing"
    kinds = [",".join(f"{part}_{number}" for part, number in sorted(kind)) for kind in tasks]
    return "/".join(kinds).rstrip("/")


class StreamsStage:
    """Members of streams groups. They do at once what they are told to, unless the line says what they still have."""

    driver: Driver
    people: dict[str, Any]
    fresh: int

    def do_member_runs(self, person: Any, rest: list[str], options: dict[str, str]) -> None:
        if not person.member_id:
            self.fresh += 1
            person.member_id = f"{person.name}-{self.fresh}"
        person.instance, person.tasks = options.get("instance"), NO_TASKS
        host, _, port = options.get("at", "").partition(":")
        self.driver.step(
            StreamsHeartbeat(
                f"{person.name} works",
                self.driver.now_ms,
                options.get("group", "s"),
                options.get("member", person.member_id),
                0,
                client_id=person.name,
                client_host="/127.0.0.1",
                instance_id=person.instance,
                rebalance_timeout_ms=60_000,
                topology=TOPOLOGIES[rest[0]] if rest else None,
                owned=NO_TASKS,
                process_id=options.get("process", person.name),
                endpoint=Endpoint(host, int(port)) if host else None,
            )
        )

    def do_member_works(self, person: Any, rest: list[str], options: dict[str, str]) -> None:
        offsets = None
        if "restored" in options:
            part, number, offset = options["restored"].replace("=", "_").split("_")
            offsets = (TaskOffset(part, int(number), int(offset)),)
        self.driver.step(
            StreamsHeartbeat(
                f"{person.name} works",
                self.driver.now_ms,
                options.get("group", "s"),
                options.get("member", person.member_id),
                int(options.get("epoch", person.epoch)),
                client_id=person.name,
                client_host="/127.0.0.1",
                instance_id=person.instance,
                owned=None if options.get("has") == "?" else tasks_of(options.get("has", show(person.tasks))),
                offsets=offsets,
                shutdown="fails" in rest,
            )
        )

    def do_member_ends(self, person: Any, rest: list[str], options: dict[str, str]) -> None:
        epoch = "-2" if "meanwhile" in rest else "-1"
        self.do_member_works(person, rest, {**options, "epoch": epoch, "has": "?"})
        person.member_id = ""

    def show_streams(self, token: str, reply: StreamsHeartbeatReply | StreamsDescribeReply) -> str:
        if reply.error is not ErrorCode.NONE:
            return f"{reply.error.name} {reply.message}"
        if isinstance(reply, StreamsDescribeReply):
            rows = "; ".join(
                f"{row.member.member_id} at {row.member.epoch} has {show(row.member.assigned)} of {show(row.target)}"
                + "".join(f" restored {o.subtopology}_{o.partition} to {o.offset}" for o in row.offsets)
                for row in reply.members
            )
            return f"{reply.state} {reply.group_epoch}/{reply.assignment_epoch} [{rows}]"
        person = self.people[token.split()[0]]
        person.epoch = reply.member_epoch
        lines = [f"at epoch {reply.member_epoch}"]
        if reply.tasks is not None:
            person.tasks = reply.tasks
            lines.append(f"has {show(reply.tasks)}")
        lines += [f"{status.code.name}: {status.detail}" for status in reply.statuses]
        lines += [
            f"-> create {topic.name} partitions={topic.partitions} replicas={topic.replication_factor}"
            for topic in reply.missing
        ]
        if reply.endpoints:
            lines += [
                f"{row.endpoint.host}:{row.endpoint.port} answers for {list(row.active)} {list(row.standby)}"
                for row in reply.endpoints
            ]
        return ", ".join(lines)
