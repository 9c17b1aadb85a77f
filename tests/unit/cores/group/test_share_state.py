"""The stored state of share partitions: fencing, deltas and snapshots, and what a reload gives back."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.cores.group.share.partition import Delivery, StateBatch
from barnabas.cores.group.share.state import ShareKey, ShareStateCore, merge
from barnabas.sim.coordinators import check_follows_log
from barnabas.wire.errors import ApiError, ErrorCode
from tests.support.examples import examples

KEY = ShareKey("g", UUID(int=1), 0)
DONE, OPEN = Delivery.ACKNOWLEDGED, Delivery.AVAILABLE


def test_stale_leaders_and_stale_groups_are_fenced() -> None:
    core = ShareStateCore()
    with pytest.raises(ApiError) as refusal:
        core.write(0, KEY, 0, 0, 0, ())
    assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert core.read(0, KEY, 3)[0].start_offset == -1
    core.apply(core.initialize(0, KEY, 2, 100))
    state, change = core.read(0, KEY, 3)
    assert (state.start_offset, state.leader_epoch) == (100, 3)
    assert change.entries
    core.apply(change)
    assert core.states[KEY].leader_epoch == 3
    core.apply(core.write(0, KEY, 2, 3, 105, [StateBatch(105, 106, OPEN, 1)]))
    for state_epoch, leader_epoch, code in (
        (1, 3, ErrorCode.FENCED_STATE_EPOCH),
        (2, 2, ErrorCode.FENCED_LEADER_EPOCH),
    ):
        with pytest.raises(ApiError) as refusal:
            core.write(0, KEY, state_epoch, leader_epoch, 0, ())
        assert refusal.value.code is code
    with pytest.raises(ApiError):
        core.read(0, KEY, 2)
    with pytest.raises(ApiError):
        core.initialize(0, KEY, 1, 0)
    assert core.states[KEY].start_offset == 105


def test_a_reset_forgets_all_and_a_delete_everything() -> None:
    core = ShareStateCore()
    core.apply(core.initialize(0, KEY, 0, 0))
    core.apply(core.write(0, KEY, 0, 0, 5, [StateBatch(5, 9, OPEN, 2)]))
    assert core.states[KEY].batches
    core.apply(core.initialize(0, KEY, 1, 50))
    assert core.states[KEY].batches == ()
    gone = core.delete(KEY)
    assert [entry.value for entry in gone.entries] == [None, None]
    core.apply(gone)
    assert core.delete(KEY).entries == ()


@pytest.mark.parametrize("seed", range(20))
def test_the_log_gives_back_the_state(seed: int) -> None:
    """Writes of all kinds, some of which cannot be appended, with few deltas to a snapshot."""
    chance = random.Random(seed)
    core, again = ShareStateCore(updates_per_snapshot=4), ShareStateCore()
    keys = [ShareKey("g", UUID(int=1), number) for number in range(2)]
    offsets = dict.fromkeys(keys, 0)
    for now_ms in range(300):
        key, kind = chance.choice(keys), chance.random()
        try:
            if kind < 0.1:
                change = core.initialize(now_ms, key, chance.randint(0, 3), 0)
                offsets[key] = 0
            elif kind < 0.15:
                change = core.delete(key)
            elif kind < 0.25:
                change = core.read(now_ms, key, chance.randint(0, 3))[1]
            else:
                first = offsets[key] + chance.randint(0, 20)
                batch = StateBatch(first, first + chance.randint(0, 9), chance.choice([DONE, OPEN]), 1)
                offsets[key] += chance.randint(0, 3)
                change = core.write(now_ms, key, 3, 3, offsets[key], [batch])
        except ApiError:
            continue
        if chance.random() < 0.1:
            continue
        core.apply(change)
        for raw_key, raw_value in change.encoded():
            again.replay(raw_key, raw_value)
        check_follows_log(core, again)


@pytest.mark.parametrize("seed", range(20))
def test_merging_is_overwriting_offset_by_offset(seed: int) -> None:
    chance = random.Random(seed)
    model: dict[int, tuple[Delivery, int]] = {}
    merged: tuple[StateBatch, ...] = ()
    start = 0
    for _ in range(60):
        first = chance.randint(0, 40)
        batch = StateBatch(
            first, first + chance.randint(0, 10), chance.choice([DONE, OPEN]), chance.randint(1, 2)
        )
        start = max(start, chance.randint(0, 12))
        merged = merge(merged, [batch], start)
        model.update(dict.fromkeys(range(first, batch.last + 1), (batch.state, batch.delivery_count)))
        model = {offset: value for offset, value in model.items() if offset >= start}
        flat = {o: (b.state, b.delivery_count) for b in merged for o in range(b.first, b.last + 1)}
        assert flat == model
        assert all(a.last + 1 < b.first or a[2:] != b[2:] for a, b in itertools.pairwise(merged))


def slow_merge(
    old: Sequence[StateBatch], new: Sequence[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """The model: each batch looks at all others."""
    pieces: list[StateBatch] = list(old)
    for batch in new:
        kept: list[StateBatch] = []
        for piece in pieces:
            if piece.first < batch.first:
                kept.append(piece._replace(last=min(piece.last, batch.first - 1)))
            if piece.last > batch.last:
                kept.append(piece._replace(first=max(piece.first, batch.last + 1)))
        pieces = [*kept, batch]
    merged: list[StateBatch] = []
    for piece in sorted(pieces):
        if piece.last < start_offset:
            continue
        piece = piece._replace(first=max(piece.first, start_offset))
        last = merged[-1] if merged else None
        if last is not None and last.last + 1 == piece.first and last[2:] == piece[2:]:
            merged[-1] = last._replace(last=piece.last)
        else:
            merged.append(piece)
    return tuple(merged)


RANDOM_BATCHES = st.lists(
    st.builds(
        lambda first, count, state, deliveries: StateBatch(first, first + count, state, deliveries),
        st.integers(0, 50),
        st.one_of(st.just(0), st.integers(0, 12)),
        st.sampled_from([DONE, OPEN]),
        st.integers(1, 2),
    ),
    max_size=12,
)


@given(st.lists(st.tuples(RANDOM_BATCHES, st.integers(-1, 40)), max_size=8))
@settings(max_examples=examples(500))
def test_merging_gives_what_the_simple_way_gives(writes: list[tuple[list[StateBatch], int]]) -> None:
    quick: tuple[StateBatch, ...] = ()
    slow: tuple[StateBatch, ...] = ()
    for batches, start_offset in writes:
        quick, slow = merge(quick, batches, start_offset), slow_merge(slow, batches, start_offset)
        assert quick == slow
