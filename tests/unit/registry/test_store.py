"""How the registry replays a topic that is created anew while somebody waits for it."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.client.errors import ClientError
from barnabas.client.options import ClientOptions
from barnabas.registry.records import noop_entry
from barnabas.registry.store import Store, StoreOptions


def test_a_topic_that_begins_elsewhere_is_read_again() -> None:
    async def work() -> None:
        store = Store(ClientOptions("127.0.0.1:1"), StoreOptions())
        begun_again: list[int] = []
        store.begun_again = lambda: begun_again.append(store.state.next_id("."))
        store.state.replay(noop_entry({".": 7}))
        waiting = asyncio.create_task(store.topic.wait_for(90, store.topic.beginnings))
        await asyncio.sleep(0)
        store.topic.begin_again(3, 4)
        assert store.topic.trouble is not None  # it has not been read to its end
        store.topic.take([], 4)
        assert store.topic.trouble is None
        assert begun_again == [8]  # records in other topics have the ids up to 7
        with pytest.raises(ClientError, match="recreated or truncated"):
            await waiting

    asyncio.run(asyncio.wait_for(work(), 60))


def test_who_asks_for_an_offset_of_before_only_after_the_topic_began_again() -> None:
    """The append's answer was on its way: that offset may never come."""

    async def work() -> None:
        store = Store(ClientOptions("127.0.0.1:1"), StoreOptions())
        beginnings = store.topic.beginnings
        store.topic.begin_again(3, 3)
        for offset in (90, 2):
            with pytest.raises(ClientError, match="recreated or truncated"):
                await store.topic.wait_for(offset, beginnings)
        await store.topic.wait_for(3, store.topic.beginnings)

    asyncio.run(asyncio.wait_for(work(), 60))
