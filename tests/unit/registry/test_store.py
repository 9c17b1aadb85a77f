"""What the registry replays while queries look at its state in other threads."""

from __future__ import annotations

import asyncio
import threading

from barnabas.client.options import ClientOptions
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
