"""What every znode tree must do."""

from __future__ import annotations

import asyncio
import time

import pytest

from barnabas.coordination.tree import (
    BadVersion,
    ConnectionLost,
    EphemeralParent,
    Event,
    EventKind,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    TooLarge,
    TreeError,
    ZnodeTree,
)
from barnabas.cores.znode_ops import Check, Create, Delete, Set, chunks

CREATED, CHANGED, DELETED = EventKind.CREATED, EventKind.CHANGED, EventKind.DELETED


class Heard:
    """Gathers events and waits for as many as are expected."""

    def __init__(self) -> None:
        self.events: list[tuple[EventKind, str]] = []

    def __call__(self, event: Event) -> None:
        self.events.append((event.kind, event.path))

    async def until(self, count: int) -> list[tuple[EventKind, str]]:
        for _ in range(6_000):
            if len(self.events) >= count:
                break
            await asyncio.sleep(0.01)
        return self.events


def test_create_get_set_delete(run):
    async def scenario(ensemble):
        tree = await ensemble.session()
        assert await tree.create("/a", b"one") == "/a"
        data, first = await tree.get("/a")
        assert (data, first.version, first.owner) == (b"one", 0, 0)
        second = await tree.set("/a", b"two", version=0)
        assert second.version == 1
        assert second.mzxid > first.mzxid
        assert second.czxid == first.czxid
        assert await tree.get("/a") == (b"two", second)
        await tree.delete("/a", version=1)
        assert await tree.exists("/a") is None

    run(scenario)


def test_refusals_change_nothing(run):
    async def scenario(ensemble):
        tree = await ensemble.session()
        await tree.create("/a", b"1")
        await tree.create("/a/b")
        with pytest.raises(NodeExists):
            await tree.create("/a")
        with pytest.raises(NoNode):
            await tree.create("/x/y")
        with pytest.raises(NoNode):
            await tree.get("/x")
        with pytest.raises(NoNode):
            await tree.children("/x")
        with pytest.raises(BadVersion):
            await tree.set("/a", b"2", version=7)
        with pytest.raises(NotEmpty):
            await tree.delete("/a")
        with pytest.raises(NoNode):
            await tree.delete("/x", recursive=True)
        for path in ("a", "/a/", "//a", "", "/.", "/..", "/a/./b", "/a\0b", "/a\x1fb", "/a/\ud800"):
            for call in (
                tree.create,
                tree.set,
                tree.get,
                tree.exists,
                tree.children,
                tree.subtree,
                tree.delete,
            ):
                with pytest.raises(TreeError):
                    await (call(path, b"") if call == tree.set else call(path))
        data, stat = await tree.get("/a")
        assert (data, stat.version) == (b"1", 0)

    run(scenario)


def test_multi_is_all_or_nothing(run):
    async def scenario(ensemble):
        tree = await ensemble.session()
        await tree.create("/a", b"1")
        with pytest.raises(NodeExists):
            await tree.multi([Create("/b"), Set("/a", b"2"), Create("/a")])
        with pytest.raises(BadVersion):
            await tree.multi([Set("/a", b"2"), Check("/a", 5)])
        assert await tree.exists("/b") is None
        assert (await tree.get("/a"))[0] == b"1"
        results = await tree.multi([Check("/a", 0), Create("/a/b", b"x"), Set("/a", b"3", 0), Delete("/a/b")])
        assert results[0] is None
        assert results[1] == "/a/b"
        assert results[2].version == 1
        assert results[3] is None
        assert await tree.multi([]) == []

    run(scenario)


def test_what_no_multi_can_carry_is_refused_and_harms_nobody(run):
    async def scenario(ensemble):
        tree = await ensemble.session()
        await tree.create("/me", ephemeral=True)
        neighbours = [asyncio.ensure_future(tree.get("/me")) for _ in range(20)]
        with pytest.raises(
            TooLarge, match=r"1 changes of 1100\d\d\d bytes; at most 1000000 bytes go at once"
        ):
            await tree.create("/large", b"x" * 1_100_000)
        with pytest.raises(TooLarge):
            await tree.multi([Create(f"/n{number}", b"x" * 300) for number in range(4000)])
        await asyncio.gather(*neighbours)
        await tree.create("/almost", b"x" * 990_000)
        assert len((await tree.get("/almost"))[0]) == 990_000

    run(scenario)


def test_thousands_of_nodes_are_made_read_and_deleted_in_chunks(run):
    async def scenario(ensemble):
        tree = await ensemble.session()
        await tree.create("/many")
        ops = [Check("/many", 0)]
        for number in range(3000):
            ops += Create(f"/many/{number}"), Create(f"/many/{number}/state", b"x" * 200)
        chunks_sent = [await tree.multi(chunk) for chunk in chunks(ops)]
        assert len(chunks_sent) > 3
        assert len(await tree.children("/many")) == 3000
        below = await tree.subtree("/many")
        assert len(below) == 6001
        assert below["/many/2999/state"][0] == b"x" * 200
        assert below["/many/7/state"] == await tree.get("/many/7/state")
        with pytest.raises(BadVersion):
            await tree.delete("/many", version=3, recursive=True)
        assert len(await tree.children("/many")) == 3000
        await tree.delete("/many", version=0, recursive=True)
        assert await tree.exists("/many") is None

    run(scenario)


def test_a_recursive_delete_outlasts_others_that_make_nodes_there(run):
    async def scenario(ensemble):
        tree, other = await ensemble.session(), await ensemble.session()
        await tree.create("/t/a/b", make_parents=True)
        subtree = tree.subtree

        async def meddled(path):
            below = await subtree(path)
            if len(below) == 3:
                await other.create("/t/late")
            return below

        tree.subtree = meddled
        await tree.delete("/t", recursive=True)
        assert await tree.exists("/t") is None

    run(scenario)


def test_children_and_subtree_do_not_mix_up_names_with_a_common_prefix(run):
    async def scenario(ensemble):
        tree = await ensemble.session()
        for path in ("/t", "/t/a", "/t/a/0", "/t/a-b", "/t/a.b", "/t2", "/t/a/0/state"):
            await tree.create(path, path.encode())
        assert await tree.children("/t") == ["a", "a-b", "a.b"]
        assert await tree.children("/t2") == []
        below = await tree.subtree("/t")
        assert set(below) == {"/t", "/t/a", "/t/a/0", "/t/a/0/state", "/t/a-b", "/t/a.b"}
        order = list(below)
        assert order.index("/t") < order.index("/t/a") < order.index("/t/a/0") < order.index("/t/a/0/state")
        assert all(data == path.encode() for path, (data, _) in below.items())
        assert set(await tree.subtree("/t/a")) == {"/t/a", "/t/a/0", "/t/a/0/state"}
        assert await tree.subtree("/none") == {}
        await tree.delete("/t", recursive=True)
        assert await tree.exists("/t/a/0") is None
        assert await tree.exists("/t2") is not None

    run(scenario)


def test_sequence_numbers_only_grow(run):
    async def scenario(ensemble):
        tree = await ensemble.session()
        await tree.create("/seq")
        first = await tree.create("/seq/n_", sequence=True)
        second = await tree.create("/seq/n_", sequence=True)
        await tree.delete(second)
        third = await tree.create("/seq/n_", sequence=True)
        assert len(first) == len("/seq/n_") + 10
        assert first < second < third

    run(scenario)


def test_make_parents(run):
    async def scenario(ensemble):
        tree = await ensemble.session()
        await tree.create("/x/y/z", b"deep", make_parents=True)
        await tree.create("/x/y/w", make_parents=True)
        assert await tree.children("/x/y") == ["w", "z"]

    run(scenario)


def test_ephemeral_nodes_go_with_their_session(run):
    async def scenario(ensemble):
        one, two = await ensemble.session(), await ensemble.session()
        assert one.session_id != two.session_id
        await one.create("/ids")
        await one.create("/ids/1", b"me", ephemeral=True)
        await two.create("/ids/2", ephemeral=True)
        assert (await two.get("/ids/1"))[1].owner == one.session_id
        with pytest.raises(EphemeralParent):
            await one.create("/ids/1/below")
        with pytest.raises(NodeExists):
            await two.create("/ids/1", ephemeral=True)
        await one.close()
        assert await two.children("/ids") == ["2"]
        await two.create("/ids/1", ephemeral=True)

    run(scenario)


def test_a_live_session_is_safe_for_a_while_and_an_ended_one_is_not_safe_for_longer(run):
    async def scenario(ensemble):
        tree = await ensemble.session()
        assert time.monotonic() < tree.safe_until_s <= time.monotonic() + tree.session_timeout_s
        await ensemble.expire(tree)
        safe_until_s = tree.safe_until_s
        ended = False
        while not ended:
            try:
                await tree.exists("/")
            except ConnectionLost:
                continue  # it was under way
            except SessionExpired:
                ended = True
        assert tree.safe_until_s <= safe_until_s

    run(scenario)


def test_an_expired_session_is_told_and_refused(run):
    async def scenario(ensemble):
        one, two = await ensemble.session(), await ensemble.session()
        own, other = Heard(), Heard()
        await one.create("/ids")
        await one.create("/ids/1", ephemeral=True)
        await one.watch("/ids", own)
        await two.watch("/ids", other)
        await ensemble.expire(one)
        assert await other.until(1) == [(DELETED, "/ids/1")]
        for _ in range(6_000):
            if own.events and own.events[-1] == (EventKind.EXPIRED, ""):
                break
            await asyncio.sleep(0.01)
        assert own.events[-1] == (EventKind.EXPIRED, "")
        with pytest.raises(SessionExpired):
            await one.get("/ids")

    run(scenario)


def test_watchers_hear_what_is_below_in_order(run):
    async def scenario(ensemble):
        one, two = await ensemble.session(), await ensemble.session()
        await one.create("/topics")
        heard, elsewhere = Heard(), Heard()
        await two.watch("/topics", heard)
        await two.watch("/topics-other", elsewhere)
        await one.multi([Create("/topics/t", b"1"), Create("/topics/t/p"), Set("/topics", b"x")])
        await two.set("/topics/t", b"2")
        await one.delete("/topics/t/p")
        assert await heard.until(5) == [
            (CREATED, "/topics/t"),
            (CREATED, "/topics/t/p"),
            (CHANGED, "/topics"),
            (CHANGED, "/topics/t"),
            (DELETED, "/topics/t/p"),
        ]
        assert elsewhere.events == []

    run(scenario)


def test_own_changes_are_heard(run):
    async def scenario(ensemble):
        tree = await ensemble.session()
        heard = Heard()
        await tree.watch("/", heard)
        await tree.create("/a")
        assert await heard.until(1) == [(CREATED, "/a")]

    run(scenario)


def test_an_ended_watch_is_silent(run):
    async def scenario(ensemble):
        tree = await ensemble.session()
        silent, heard = Heard(), Heard()
        end = await tree.watch("/", silent)
        await tree.watch("/", heard)
        end()
        end()
        await tree.create("/a")
        await heard.until(1)
        assert silent.events == []

    run(scenario)


def test_two_writers_with_versions_lose_no_update(run):
    async def scenario(ensemble):
        trees = [await ensemble.session() for _ in range(3)]
        await trees[0].create("/n", b"0")

        async def add(tree: ZnodeTree, times: int) -> None:
            done = 0
            while done < times:
                data, stat = await tree.get("/n")
                await asyncio.sleep(0)
                try:
                    await tree.set("/n", str(int(data) + 1).encode(), stat.version)
                except BadVersion:
                    continue
                done += 1

        await asyncio.gather(*(add(tree, 10) for tree in trees))
        assert (await trees[0].get("/n"))[0] == b"30"

    run(scenario)
