"""What a leader knows of its followers, and where a follower cuts its log."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from barnabas.cores.epochs import LeaderEpochs
from barnabas.cores.replication import InSyncReplicas, truncation_offset
from barnabas.records.units import LeaderEpoch, Offset


def test_the_high_watermark_is_the_least_end_in_sync() -> None:
    replicas = InSyncReplicas(1, (1, 2, 3))
    assert replicas.high_watermark(Offset(10)) == 0
    replicas.note_fetch(2, Offset(8), Offset(10), 0)
    replicas.note_fetch(3, Offset(10), Offset(10), 0)
    assert replicas.high_watermark(Offset(10)) == 8
    replicas.set((3, 1))
    assert replicas.high_watermark(Offset(10)) == 10
    assert replicas.count == 2
    replicas.set(())
    assert (replicas.count, replicas.high_watermark(Offset(4))) == (1, 4)


def test_while_a_change_is_under_way_both_sets_count() -> None:
    replicas = InSyncReplicas(1, (1, 2))
    replicas.note_fetch(2, Offset(10), Offset(10), 0)
    replicas.note_fetch(3, Offset(7), Offset(10), 0)
    replicas.want((1, 2, 3))
    assert replicas.high_watermark(Offset(10)) == 7
    assert not replicas.is_settled
    replicas.settled()
    assert replicas.high_watermark(Offset(10)) == 10
    replicas.want((1,))  # it may never be written: who is to leave still counts
    replicas.note_fetch(2, Offset(9), Offset(12), 0)
    assert replicas.high_watermark(Offset(12)) == 9


def test_a_follower_joins_with_what_is_committed_and_what_the_term_began_with() -> None:
    replicas = InSyncReplicas(1, (1,))
    replicas.begin((1,), 0)
    assert not replicas.may_join(2, Offset(5), Offset(8))
    replicas.note_fetch(2, Offset(6), Offset(9), 1)
    assert not replicas.may_join(2, Offset(5), Offset(8))
    replicas.note_fetch(2, Offset(8), Offset(9), 2)
    assert replicas.may_join(2, Offset(5), Offset(8))
    assert not replicas.may_join(2, Offset(9), Offset(8))


def test_what_is_known_of_a_follower_is_about_one_registration_of_its_broker() -> None:
    replicas = InSyncReplicas(1, (1, 2))
    for node in (2, 3):
        replicas.note_fetch(node, Offset(10), Offset(10), 0, 70)
    assert replicas.may_join(3, Offset(10), Offset(0))
    for node in (2, 3):
        replicas.forget(node, 80, 5)
    assert not replicas.may_join(3, Offset(0), Offset(0))
    assert replicas.high_watermark(Offset(10)) == 0
    assert replicas.lagging(Offset(10), 100, 100) == ()  # who is in sync gets time to show it again
    replicas.note_fetch(
        2, Offset(10), Offset(10), 50, 70
    )  # sent before the broker registered anew, and read late
    assert (replicas.epoch_of(2), replicas.end_of(2)) == (80, 0)
    replicas.note_fetch(2, Offset(4), Offset(10), 60, 80)
    assert (replicas.epoch_of(2), replicas.end_of(2)) == (80, 4)
    replicas.note_fetch(
        2, Offset(5), Offset(10), 70, 90
    )  # the request is here before the news of the registration
    assert (replicas.epoch_of(2), replicas.end_of(2)) == (90, 5)


def test_a_follower_lags_when_it_was_not_caught_up_for_too_long() -> None:
    replicas = InSyncReplicas(1)
    replicas.begin((1, 2, 3), 1_000)
    assert replicas.lagging(Offset(5), 1_100, 100) == ()
    assert replicas.lagging(Offset(5), 1_101, 100) == (2, 3)
    # It asks for what was the end when it asked before: it was caught up then, though more has come since.
    replicas.note_fetch(2, Offset(5), Offset(6), 1_050)
    replicas.note_fetch(2, Offset(6), Offset(9), 1_090)
    assert replicas.lagging(Offset(9), 1_140, 100) == (3,)
    assert replicas.lagging(Offset(9), 1_151, 100) == (2, 3)
    # Whoever has everything does not lag, however long nothing was written.
    replicas.note_fetch(2, Offset(9), Offset(9), 1_151)
    assert replicas.lagging(Offset(9), 90_000, 100) == (3,)


def test_a_new_term_forgets_what_was_known() -> None:
    replicas = InSyncReplicas(1, (1, 2))
    replicas.note_fetch(2, Offset(10), Offset(10), 0)
    replicas.begin((1, 2), 5)
    assert replicas.high_watermark(Offset(10)) == 0


Batch = tuple[int, int]


def epochs_of(log: list[Batch]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for offset, (epoch, _) in enumerate(log):
        epochs.assign(LeaderEpoch(epoch), Offset(offset))
    return epochs


@given(st.integers(0, 1_000_000))
def test_logs_that_parted_agree_again_by_the_answers_of_the_leader(seed: int) -> None:
    """Two logs with a common beginning, grown apart under epochs that had one leader each."""
    chance = random.Random(seed)
    leader: list[Batch] = []
    follower: list[Batch] = []
    for epoch in range(1, 7):
        # In each epoch one of the two leads, or a third; the other one copies some of it, if their logs agree.
        count = chance.randrange(3)
        mine = [(epoch, chance.getrandbits(30)) for _ in range(count)]
        leads_first = chance.random() < 0.5
        first, second = (leader, follower) if leads_first else (follower, leader)
        agree = first == second
        first += mine
        if agree and mine:
            second += mine[: chance.randrange(len(mine) + 1)]
    now = 7
    for _ in range(20):
        epochs = epochs_of(follower)
        last = epochs.latest
        if last < 0:
            break
        ours = epochs_of(leader)
        if ours.latest < 0:
            follower.clear()  # out of range there: it begins again
            break
        if ours.latest <= last < now:
            end_epoch, end = int(ours.latest), len(leader)
        else:
            fork = ours.end_of(last, Offset(len(leader)))
            end_epoch, end = int(fork.epoch), int(fork.end_offset)
        if end_epoch == last and end >= len(follower):
            break
        cut = truncation_offset(epochs, Offset(len(follower)), LeaderEpoch(end_epoch), Offset(end))
        assert cut < len(follower), "every answer cuts something, so that it comes to an end"
        del follower[cut:]
    assert follower == leader[: len(follower)]
