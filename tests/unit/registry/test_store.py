"""What the registry replays while queries look at its state in other threads."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from barnabas.client.errors import ClientError
from barnabas.client.options import ClientOptions
from barnabas.registry.records import noop_entry
from barnabas.registry.store import Store, StoreOptions


def test_records_that_wait_come_before_the_next_hold() -> None:
    """Queries that overlap would keep them out for ever otherwise."""

    async def work() -> None:
        store = Store(ClientOptions("127.0.0.1:1"), StoreOptions())
        store._loop = asyncio.get_running_loop()
        await store.hold()
        reader = threading.Thread(target=store._hand_over, args=([], 7))
        reader.start()
        while not store._kept:  # noqa: ASYNC110 (a plain list)
            await asyncio.sleep(0.001)
        second = asyncio.create_task(store.hold())
        third = asyncio.create_task(store.hold())
        await asyncio.sleep(0)
        assert not second.done()
        assert store.state.next_offset < 7
        store.release()
        assert store.state.next_offset == 7
        await asyncio.gather(second, third)
        store.release()
        await store.hold()  # nothing waits: holds may overlap
        await asyncio.to_thread(reader.join)

    asyncio.run(asyncio.wait_for(work(), 60))


def test_a_topic_that_begins_elsewhere_is_read_again_when_nobody_looks_at_the_state() -> None:
    async def work() -> None:
        store = Store(ClientOptions("127.0.0.1:1"), StoreOptions())
        told: list[int] = []
        store.begun_again = lambda: told.append(store.state.next_offset)
        store.state.next_offset = 50
        store.state.replay(noop_entry({".": 7}))
        waiting = asyncio.create_task(store.wait_for(90, store.beginnings))
        await asyncio.sleep(0)
        await store.hold()
        store._unless_held(partial(store._begin_again, 3))
        store._unless_held(partial(store._take, [], 4))
        assert store.state.next_offset == 50
        store.release()
        assert (told, store.state.next_offset) == ([3], 4)
        assert store.state.next_id(".") == 8  # records in other topics have the ids up to 7
        with pytest.raises(ClientError, match="recreated or truncated"):
            await waiting

    asyncio.run(asyncio.wait_for(work(), 60))


def test_who_asks_for_an_offset_of_before_only_after_the_topic_began_again() -> None:
    """The append's answer was on its way: that offset may never come."""

    async def work() -> None:
        store = Store(ClientOptions("127.0.0.1:1"), StoreOptions())
        beginnings = store.beginnings
        store.state.next_offset = 50
        store._begin_again(3)
        assert not store.take_own([noop_entry({".": 7})], 3, beginnings)
        for offset in (90, 2):
            with pytest.raises(ClientError, match="recreated or truncated"):
                await store.wait_for(offset, beginnings)
        await store.wait_for(3, store.beginnings)

    asyncio.run(asyncio.wait_for(work(), 60))
