"""A request that acknowledges thousands of records in any manner leaves every turn of the broker's loop short."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.api.handlers.shares import share_acknowledge, share_fetch
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages import share_acknowledge as acknowledge_wire
from barnabas.wire.messages import share_fetch as fetch_wire
from tests.support.turns import Turns
from tests.unit.broker.share_stage import ACCEPT, GROUP, REJECT, RELEASE, Stage, run

MANY = 5_000
GOAL_MS = 2 * 20
"""As in test_coordinator_turns.py: the goal is 20 ms, and processor time varies on a shared machine."""
LOCKS = {
    "group__share__max__partition__max__record__locks": "10000",
    "group__share__partition__max__record__locks": "5000",
}


@pytest.fixture(autouse=True)
def without_collections() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def ranges(kinds: list[int], one_range: bool) -> list[tuple[int, int, list[int]]]:
    """(first, last, types): one range with a type for each record, or a range for each record."""
    return [(0, len(kinds) - 1, kinds)] if one_range else [(i, i, [kind]) for i, kind in enumerate(kinds)]


def request(on: Stage, wire: Any, rows: list[tuple[int, int, list[int]]]) -> Any:
    batches = [
        wire.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
        for first, last, types in rows
    ]
    if wire is fetch_wire:
        fetch = on.request("a", max_records=0)
        fetch.topics[0].partitions[0].acknowledgement_batches = batches
        return fetch
    partition = wire.AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
    topic = wire.AcknowledgeTopic(topic_id=on.topic_id, partitions=[partition])
    return wire.ShareAcknowledgeRequest(
        group_id=GROUP, member_id="a", share_session_epoch=on.epochs["a"], topics=[topic]
    )


@pytest.mark.parametrize("one_range", [True, False], ids=["one range", "many ranges"])
@pytest.mark.parametrize(
    ("handler", "wire"),
    [(share_acknowledge, acknowledge_wire), (share_fetch, fetch_wire)],
    ids=["alone", "fetch"],
)
def test_acknowledging_very_many_records(tmp_path: Path, handler: Any, wire: Any, one_range: bool) -> None:
    chance = random.Random(1)
    kinds = [chance.choice([ACCEPT, RELEASE, REJECT]) for _ in range(MANY)]

    async def scenario(on: Stage) -> None:
        on.produce(MANY)
        assert sum(last - first + 1 for first, last, _ in on.fetch("a", max_records=MANY)) == MANY
        asked = request(on, wire, ranges(kinds, one_range))
        turns = Turns(asyncio.get_running_loop())
        turns.start()
        answer = handler.handle(on.context(), asked)
        if isinstance(answer, Awaitable):
            answer = await answer
        await asyncio.sleep(0)
        turns.stop()
        (row,) = answer.responses[0].partitions
        assert (row.acknowledge_error_code if wire is fetch_wire else row.error_code) == ErrorCode.NONE
        assert turns.longest_cpu_ms < GOAL_MS
        core = on.broker.services.shares.open(GROUP, on.topic_id, 0).core
        assert sorted(core.records) == [i for i, kind in enumerate(kinds) if kind == RELEASE]

    run(tmp_path, scenario, **LOCKS)


def test_nothing_is_applied_of_what_was_never_locked(tmp_path: Path) -> None:
    async def scenario(on: Stage) -> None:
        on.produce(MANY)
        on.fetch("a", max_records=MANY)
        rows = ranges([ACCEPT] * MANY, one_range=False)
        answer = await share_acknowledge.handle(
            on.context(), request(on, acknowledge_wire, [*rows, (MANY, MANY, [ACCEPT])])
        )
        assert answer.responses[0].partitions[0].error_code == ErrorCode.INVALID_RECORD_STATE
        assert len(on.broker.services.shares.open(GROUP, on.topic_id, 0).core.records) == MANY

    run(tmp_path, scenario, **LOCKS)
