"""The executor between a tree that others change too and partitions that only note what they are told."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import pytest

from barnabas.broker.cluster.controller import Controller
from barnabas.broker.partitions.registry import Partitions
from barnabas.config.loader import load
from barnabas.coordination.local import LocalStore, LocalTree
from barnabas.coordination.tree import ConnectionLost, Result, ZnodeTree
from barnabas.cores import znode_layout as layout
from barnabas.cores.cluster_image import ClusterImage, PartitionImage, TopicImage
from barnabas.cores.controller import state_of
from barnabas.cores.elections import decide_unclean_restart
from barnabas.cores.znode_layout import Assignment, Endpoint
from barnabas.cores.znode_ops import CHUNK_OPS, Create, Op, Set
from barnabas.runtime.machine import Machine
from barnabas.wire.errors import ApiError, ErrorCode

ENDPOINTS = (Endpoint("PLAINTEXT", "h", 9092, "PLAINTEXT"),)


class NotedPartitions:
    """What the controller tells the partitions."""

    recovered_unclean = False

    def __init__(self) -> None:
        self.served: dict[str, int] = {}
        self.roles: dict[tuple[str, int], PartitionImage] = {}

    def without_logs(self, image: ClusterImage) -> list[tuple[str, int]]:
        return []

    def update(self, topic: str, index: int, image: PartitionImage) -> None:
        self.roles[topic, index] = image

    def load(self, image: ClusterImage) -> None:
        self.served = {topic.name: len(topic.partitions) for topic in image.topics.values()}

    async def create(self, topic: TopicImage) -> None:
        self.served[topic.name] = len(topic.partitions)

    async def delete(self, topic: TopicImage, *, rests: bool = False) -> None:
        self.served.pop(topic.name, None)

    def reconfigure(self, topic: str) -> None:
        pass


class Node:
    """A controller, its partitions, and a second session by which somebody else changes the tree."""

    def __init__(self, store: LocalStore, node_id: int = 1) -> None:
        self.store = store
        self.partitions = NotedPartitions()
        self.other = store.session()
        self.sessions: list[LocalTree] = []
        config = load(None, {"node.id": str(node_id), "log.dirs": "/nowhere"})
        self.controller = Controller(
            config, Machine(), cast(Partitions, self.partitions), self.open_tree, patience_s=1
        )

    async def open_tree(self) -> ZnodeTree:
        self.sessions.append(self.store.session())
        return self.sessions[-1]

    async def start(self) -> Node:
        await self.controller.executor.open()
        await self.controller._load()
        await self.controller.register(ENDPOINTS, None)
        return self

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    async def create(self, name: str, partitions: int = 1) -> None:
        await self.controller.topics.create(name, partitions, 1, {}, {})

    async def until(self, holds: Callable[[], object]) -> None:
        for _ in range(12_000):
            if holds():
                return
            await asyncio.sleep(0.005)
        raise AssertionError(f"{holds} did not come true; {str(self.image)[:2000]}")

    async def loaded(self) -> ClusterImage:
        image = ClusterImage()
        for path, (data, stat) in (await self.other.subtree("/")).items():
            image.put(path, data, stat.version, stat.czxid)
        return image

    async def check(self) -> None:
        """The image is what the tree says, and nothing is half done."""
        self.image.check()
        assert self.image == await self.loaded()
        assert all(topic.is_complete for topic in self.image.topics.values())
        assert self.partitions.served == {
            name: len(topic.partitions) for name, topic in self.image.topics.items()
        }


def run(
    scenario: Callable[[Node], Awaitable[None]], before: Callable[[Node], Awaitable[None]] | None = None
) -> None:
    async def body() -> None:
        store = LocalStore(None)
        node = Node(store)
        if before is not None:
            await before(node)
        await node.start()
        try:
            await scenario(node)
        finally:
            await node.controller.close()
            store.close()

    asyncio.run(body())


def meddle(node: Node, change: Callable[[], Awaitable[object]], times: int = 1) -> None:
    """Let somebody else be quicker, at the moment when the controller's next changes are about to be made."""
    tree = node.controller.tree
    multi, left = tree.multi, times

    async def meddled(ops: Sequence[Op]) -> list[Result]:
        nonlocal left
        if left:
            left -= 1
            await change()
        return await multi(ops)

    tree.multi = meddled  # type: ignore[method-assign]


async def grow_by_one(node: Node, name: str) -> None:
    """Somebody else adds a partition, and leaves its nodes to the controller."""
    data, stat = await node.other.get(layout.topic_path(name))
    assignment = layout.decode_assignment(name, data)
    more = Assignment(assignment.topic_id, {**assignment.replicas, len(assignment.replicas): (1,)})
    await node.other.set(layout.topic_path(name), layout.encode_assignment(more), stat.version)


def test_what_is_asked_for_is_made_shown_and_told() -> None:
    async def scenario(node: Node) -> None:
        await node.create("t", 3)
        await node.check()
        await node.controller.topics.add_partitions("t", 5, None)
        await node.controller.options.alter_configs(2, "t", [("retention.ms", 0, "5")])
        await node.check()
        assert node.image.config("topics", "t") == {"retention.ms": "5"}
        await node.controller.topics.delete("t")
        await node.check()
        assert await node.other.subtree("/admin/delete_topics/t") == {}

    run(scenario)


def test_a_topic_of_ten_thousand_partitions_goes_in_chunks() -> None:
    async def scenario(node: Node) -> None:
        sizes: list[int] = []
        tree = node.controller.tree
        multi = tree.multi

        async def counted(ops: Sequence[Op]) -> list[Result]:
            sizes.append(len(ops))
            assert "t" not in node.image.topics, "shown before it is complete"
            return await multi(ops)

        tree.multi = counted  # type: ignore[method-assign]
        await node.create("t", 10_000)
        assert len(sizes) > 10
        assert max(sizes) <= 501
        tree.multi = multi  # type: ignore[method-assign]
        await node.check()
        await node.controller.topics.delete("t")
        await node.check()

    run(scenario)


def test_a_change_that_was_overtaken_is_decided_again() -> None:
    async def scenario(node: Node) -> None:
        await node.create("t")
        meddle(node, lambda: grow_by_one(node, "t"))
        await node.controller.topics.add_partitions("t", 4, None)
        assert len(node.image.topics["t"].partitions) == 4
        await node.check()

        async def somebody_configures_it() -> None:
            await node.other.create("/config/topics/t", layout.encode_config({"retention.ms": "1"}))

        meddle(node, somebody_configures_it)
        await node.controller.options.alter_configs(2, "t", [("segment.bytes", 0, "1000000")])
        assert node.image.config("topics", "t") == {"retention.ms": "1", "segment.bytes": "1000000"}
        await node.check()

        async def somebody_configures_it_again() -> None:
            texts = layout.encode_config({"retention.ms": "2", "segment.bytes": "1000000"})
            await node.other.set("/config/topics/t", texts)

        meddle(node, somebody_configures_it_again)
        await node.controller.options.alter_configs(2, "t", [("segment.ms", 0, "5000000")])
        assert node.image.config("topics", "t") == {
            "retention.ms": "2", "segment.bytes": "1000000", "segment.ms": "5000000",
        }  # fmt: skip
        await node.check()
        meddle(node, somebody_configures_it_again)
        await node.controller.options.alter_configs(
            2, "t", [(name, 1, None) for name in ("retention.ms", "segment.ms")]
        )
        assert node.image.config("topics", "t") == {"segment.bytes": "1000000"}

    run(scenario)


def test_whoever_is_always_overtaken_gives_up() -> None:
    async def scenario(node: Node) -> None:
        await node.create("t")
        meddle(node, lambda: grow_by_one(node, "t"), times=100)
        with pytest.raises(ApiError, match="changed by others 5 times"):
            await node.controller.topics.add_partitions("t", 100, None)
        node.controller.tree.multi = node.other.multi  # type: ignore[method-assign]
        # What the others added is there all the same.
        await node.until(lambda: len(node.image.topics["t"].partitions) > 5)

    run(scenario)


def test_a_large_change_is_made_although_others_change_one_partition_after_the_other() -> None:
    """As when a controller elects leaders while the leaders of other partitions change their in-sync sets."""

    async def scenario(node: Node) -> None:
        names = [f"t{number}" for number in range(12)]
        for name in names:
            await node.create(name)
        left = list(names)

        async def change_one() -> None:
            state = state_of(node.image.topics[left[-1]].partitions[0])
            await node.other.multi([Set(layout.state_path(left.pop(), 0), layout.encode_state(state))])

        meddle(node, change_one, times=len(names))
        controller = node.controller
        await controller.run(
            lambda: controller.change_states(lambda: decide_unclean_restart(controller.image, 1))
        )
        assert not left
        assert {node.image.topics[name].partitions[0].leader_epoch for name in names} == {1}
        await node.check()

    run(scenario)


def test_partitions_get_their_roles_while_the_states_of_others_are_still_being_written() -> None:
    """A broker that stops hands thousands of partitions over. Whoever writes to one hears at once that it has moved."""

    async def scenario(node: Node) -> None:
        count = 3 * CHUNK_OPS
        await node.create("t", count)
        known: list[tuple[int, int]] = []
        tree = node.controller.tree
        multi = tree.multi

        async def noting(ops: Sequence[Op]) -> list[Result]:
            roles = [index for (_, index), role in node.partitions.roles.items() if role.leader_epoch == 1]
            image = node.image.topics["t"].partitions
            known.append((len(roles), sum(partition.leader_epoch == 1 for partition in image.values())))
            return await multi(ops)

        tree.multi = noting  # type: ignore[method-assign]
        controller = node.controller
        await controller.run(
            lambda: controller.change_states(lambda: decide_unclean_restart(controller.image, 1))
        )
        assert len(known) > 2
        assert [roles for roles, _ in known] == [changed for _, changed in known]
        assert {role.leader_epoch for role in node.partitions.roles.values()} == {1}
        assert len(node.partitions.roles) == count
        await node.check()

    run(scenario)


def test_options_of_a_node_that_only_held_others() -> None:
    """Older Kafka leaves the node of a user empty that has options for a client id only."""

    async def scenario(node: Node) -> None:
        pair = layout.encode_config({"producer_byte_rate": "1"})
        await node.other.create("/config/users/u/clients/c", pair, make_parents=True)
        await node.until(lambda: ("users", "u/clients/c") in node.image.configs)
        await node.controller.options.alter_quotas({"user": "u"}, [("producer_byte_rate", 2.0)])
        assert node.image.config("users", "u") == {"producer_byte_rate": "2.0"}
        await node.check()

    run(scenario)


def test_the_same_topic_made_by_somebody_else_a_moment_before() -> None:
    async def scenario(node: Node) -> None:
        theirs = uuid.uuid4()

        async def somebody_makes_it() -> None:
            data = layout.encode_assignment(Assignment(theirs, {0: (1,), 1: (1,)}))
            await node.other.create(layout.topic_path("t"), data)

        meddle(node, somebody_makes_it)
        with pytest.raises(ApiError, match="Topic 't' already exists"):
            await node.create("t")
        # Theirs had no partition nodes: the controller has made them.
        await node.check()
        assert node.image.topics["t"].topic_id == theirs

    run(scenario)


def test_others_changes_are_followed() -> None:
    async def scenario(node: Node) -> None:
        # A topic as old tools make it: without an id and without partitions' nodes.
        await node.other.create(layout.topic_path("old"), b'{"version":1,"partitions":{"0":[1],"1":[1]}}')
        await node.until(lambda: "old" in node.image.topics)
        await node.check()
        assert node.image.topics["old"].topic_id.int != 0
        await node.other.create("/config/topics/old", layout.encode_config({"retention.ms": "7"}))
        await node.until(lambda: node.image.config("topics", "old") == {"retention.ms": "7"})
        await node.other.create(layout.deletion_path("old"))
        await node.until(lambda: "old" not in node.image.topics and not node.image.deleting)
        await node.check()
        assert await node.other.exists("/config/topics/old") is None

    run(scenario)


def test_nothing_is_read_for_what_the_broker_changed_itself() -> None:
    async def scenario(node: Node) -> None:
        reads: list[str] = []
        tree = node.controller.tree
        subtree = tree.subtree

        async def noted(path: str) -> dict[str, tuple[bytes, object]]:
            reads.append(path)
            return cast(dict[str, tuple[bytes, object]], await subtree(path))

        tree.subtree = noted  # type: ignore[assignment, method-assign]
        await node.create("t", 50)
        await node.controller.options.alter_configs(2, "t", [("retention.ms", 0, "5")])
        await node.other.create("/config/topics/x", layout.encode_config({"retention.ms": "7"}))
        await node.until(lambda: ("topics", "x") in node.image.configs)
        assert reads == []
        assert node.controller.executor._unexplained == {}

    run(scenario)


def test_a_lost_session_is_replaced_and_the_broker_registered_again() -> None:
    async def scenario(node: Node) -> None:
        await node.create("t", 2)
        before = node.image.controller_epoch
        node.store.expire(node.sessions[-1].session_id)
        await node.until(lambda: len(node.sessions) == 2 and node.image.controller_epoch > before)
        stat = await node.other.exists(layout.broker_path(1))
        assert stat is not None
        assert stat.owner == node.sessions[-1].session_id
        await node.create("u")
        await node.check()

    run(scenario)


def test_a_request_in_the_middle_of_a_lost_session_is_made_in_the_next() -> None:
    async def scenario(node: Node) -> None:
        async def session_ends() -> None:
            node.store.expire(node.sessions[0].session_id)

        meddle(node, session_ends)
        await node.create("t", 3)
        await node.check()
        assert len(node.sessions) == 2

    run(scenario)


def test_an_answer_that_was_lost_is_no_second_topic() -> None:
    async def scenario(node: Node) -> None:
        tree = node.controller.tree
        multi, lost = tree.multi, [True, False, True, False, True, False]

        async def unanswered(ops: Sequence[Op]) -> list[Result]:
            results = await multi(ops)
            if lost and lost.pop():
                return results
            if lost:
                raise ConnectionLost(ops[0].path, "no answer")
            return results

        tree.multi = unanswered  # type: ignore[method-assign]
        await node.create("t", 3)
        await node.check()
        await node.controller.topics.add_partitions("t", 4, None)
        await node.check()
        await node.controller.topics.delete("t")
        await node.until(lambda: not node.image.deleting)
        await node.check()

    run(scenario)


def test_requests_do_not_wait_for_ever_for_a_tree_that_is_away() -> None:
    async def scenario(node: Node) -> None:
        tree = node.controller.tree
        multi, subtree = tree.multi, tree.subtree

        async def away(*_: object) -> None:
            raise ConnectionLost("/", "no answer")

        tree.multi = tree.subtree = away  # type: ignore[assignment, method-assign]
        refused = await asyncio.gather(*(node.create(name) for name in "abc"), return_exceptions=True)
        assert [error.code for error in refused if isinstance(error, ApiError)] == [
            ErrorCode.REQUEST_TIMED_OUT
        ] * 3
        tree.multi, tree.subtree = multi, subtree  # type: ignore[method-assign]
        await node.create("d")
        await node.check()

    run(scenario)


def test_somebody_removes_the_registration_or_the_controller() -> None:
    async def scenario(node: Node) -> None:
        await node.other.delete(layout.broker_path(1))
        await node.other.delete(layout.CONTROLLER)
        epoch = node.image.controller_epoch
        await node.until(lambda: node.image.controller_epoch > epoch and node.image.controller_id == 1)
        assert await node.other.exists(layout.broker_path(1)) is not None
        await node.create("t")
        await node.check()

    run(scenario)


def test_a_second_broker_of_the_same_id_is_refused() -> None:
    async def scenario(node: Node) -> None:
        second = Node(node.store)
        with pytest.raises(
            OSError, match=r"node\.id=1 is registered already: /brokers/ids/1 belongs to another"
        ):
            await second.start()
        await second.controller.close()
        await node.create("t")
        await node.check()

    run(scenario)


def test_brokers_come_and_go_and_the_controller_elects_leaders() -> None:
    async def scenario(node: Node) -> None:
        second = await Node(node.store, node_id=2).start()
        third = await Node(node.store, node_id=3).start()
        await node.until(lambda: sorted(node.image.brokers) == [1, 2, 3])
        await node.controller.topics.create("t", -1, -1, {0: (2, 3, 1), 1: (3, 1, 2), 2: (1, 2, 3)}, {})
        await third.until(lambda: "t" in third.image.topics)
        await third.check()
        with pytest.raises(ApiError) as refused:
            await second.create("u")
        assert refused.value.code == ErrorCode.NOT_CONTROLLER
        await second.controller.close()
        await third.until(lambda: third.image.topics["t"].partitions[0].leader == 3)
        assert [p.isr for p in third.image.topics["t"].partitions.values()] == [(3, 1), (3, 1), (1, 3)]
        # The controller goes: another one takes over, and what it led has another leader.
        await node.controller.close()
        await third.until(lambda: third.image.topics["t"].partitions[2].leader == 3)
        assert third.image.controller_id == 3
        assert third.image.controller_epoch == 2
        assert third.partitions.roles["t", 2].leader == 3
        await third.create("u")
        await third.check()
        await third.controller.close()

    run(scenario)


@pytest.mark.parametrize("chunk", range(3))
def test_a_controller_that_dies_in_the_middle_is_followed_by_one_that_goes_on(chunk: int) -> None:
    """Of three brokers the controller dies while it elects leaders for a broker that died just before."""

    async def scenario(node: Node) -> None:
        second = await Node(node.store, node_id=2).start()
        third = await Node(node.store, node_id=3).start()
        await node.until(lambda: sorted(node.image.brokers) == [1, 2, 3])
        await node.controller.topics.create("t", -1, -1, dict.fromkeys(range(1_400), (2, 1, 3)), {})
        await third.until(lambda: "t" in third.image.topics)
        tree = node.controller.tree
        multi, left = tree.multi, chunk

        async def until_dead(ops: Sequence[Op]) -> list[Result]:
            nonlocal left
            if left == 0:
                node.store.expire(tree.session_id)
                await asyncio.sleep(3600)
            left -= 1
            return await multi(ops)

        tree.multi = until_dead  # type: ignore[method-assign]
        await second.controller.close()
        await third.until(
            lambda: (
                {p.leader for p in third.image.topics["t"].partitions.values()} == {3}
                and third.image.controller_id == 3
            )
        )
        await third.check()
        await third.controller.close()

    run(scenario)


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("chunk", range(5))
@pytest.mark.parametrize("request_kind", ["create", "grow", "delete"])
def test_a_crash_between_two_chunks_is_finished_by_the_next_start(request_kind: str, chunk: int) -> None:
    """Created topics are completed with all their partitions; deleted ones are gone with all their nodes."""

    async def crash(node: Node) -> None:
        first = Node(node.store)
        await first.start()
        await first.create("kept", 2)
        if request_kind != "create":
            await first.create("t", 600)
        empty = set(await first.other.subtree("/"))
        tree = first.controller.tree
        multi, left = tree.multi, chunk

        async def killed(ops: Sequence[Op]) -> list[Result]:
            nonlocal left
            if not left:
                raise Killed
            left -= 1
            return await multi(ops)

        tree.multi = killed  # type: ignore[method-assign]
        requests = {
            "create": lambda: first.create("t", 1100),
            "grow": lambda: first.controller.topics.add_partitions("t", 1700, None),
            "delete": lambda: first.controller.topics.delete("t"),
        }
        asked = asyncio.ensure_future(requests[request_kind]())
        task = first.controller.executor._task
        assert task is not None
        await asyncio.wait((asked, task), return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        task.cancel()
        await asyncio.gather(asked, task, return_exceptions=True)
        assert set(await first.other.subtree("/")) != empty or chunk == 0
        node.store.end(first.sessions[0].session_id)

    async def scenario(node: Node) -> None:
        await node.check()
        topic = node.image.topics.get("t")
        if request_kind == "create":
            assert topic is None if chunk == 0 else topic is not None and len(topic.partitions) == 1100
        elif request_kind == "grow":
            assert topic is not None
            assert len(topic.partitions) == (600 if chunk == 0 else 1700)
        else:
            assert (topic is not None) == (chunk == 0)
        assert len(node.image.topics["kept"].partitions) == 2

    run(scenario, before=crash)


def test_a_damaged_node_is_passed_over() -> None:
    async def scenario(node: Node) -> None:
        await node.create("t")
        await node.other.multi([Create("/brokers/topics/bad", b"\xff"), Create("/config/topics/bad", b"[1]")])
        await node.create("u")
        assert sorted(node.image.topics) == ["t", "u"]

    run(scenario)
