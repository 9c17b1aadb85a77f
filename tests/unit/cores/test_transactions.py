"""The transaction coordinator's core, event by event: states, fencing, epochs, repeated and late requests, loading."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.cores.decision import Decision, Producer, Timer, TimerFired
from barnabas.cores.transactions import (
    AddPartitions,
    EndTxn,
    ExpireTransactionalId,
    InitProducer,
    InitReply,
    MarkersWritten,
    TransactionCore,
    TxnReply,
    TxnState,
    WriteMarkers,
)
from barnabas.cores.transactions.records import entry_of
from barnabas.cores.transactions.state import EPOCH_EXHAUSTED, EPOCH_MAX, TV_0, TV_2, TXN_NEXT
from barnabas.sim.coordinators import check_follows_log
from barnabas.wire.errors import ErrorCode
from tests.support.examples import examples

PARTS = frozenset({("t", 0), ("t", 1)})
E = ErrorCode


class Coordinator:
    """A core with its log: every record is also replayed into a second core, which must come out the same."""

    def __init__(self) -> None:
        self.core, self.replayed = TransactionCore(), TransactionCore()
        self.log: list[tuple[bytes, bytes | None]] = []
        self.now_ms = 1_000
        self.next_id = 100
        self.markers: list[WriteMarkers] = []
        self.writes_markers = True

    def step(self, event: Any) -> Any:
        before = repr(self.core.__dict__)
        decision = self.core.decide(event)
        assert repr(self.core.__dict__) == before, f"deciding on {event} has changed the state"
        for entry in decision.encoded():
            self.log.append(entry)
            self.replayed.replay(*entry)
        self.core.apply(decision)
        self.core.check()
        check_follows_log(self.core, self.replayed)
        self._carry_out(decision)
        return decision.replies[0][1] if decision.replies else None

    def change(self, **changes: Any) -> None:
        """An entry is written by other means."""
        entry = entry_of(self.core.transactions["x"]._replace(**changes)).encode()
        self.log.append(entry)
        for core in (self.core, self.replayed):
            core.replay(*entry)

    def _carry_out(self, decision: Decision) -> None:
        self.markers += decision.effects
        if self.writes_markers:
            self.finish()

    def finish(self) -> None:
        """All markers are written."""
        waiting, self.markers = self.markers, []
        for effect in waiting:
            self.step(MarkersWritten("done", self.now_ms, effect.transactional_id, effect.producer))

    def init(self, name: str = "x", expected: Producer | None = None, timeout_ms: int = 60_000) -> InitReply:
        reply: InitReply = self.step(InitProducer("q", self.now_ms, name, timeout_ms, expected))
        if reply.needs_id:
            self.next_id += 1
            reply = self.step(InitProducer("q", self.now_ms, name, timeout_ms, expected, self.next_id))
        return reply

    def producer(self, name: str = "x") -> Producer:
        reply = self.init(name)
        assert reply.error is E.NONE
        return Producer(reply.producer_id, reply.epoch)

    def add(self, who: Producer, version: int = TV_0, connection: int = 1, name: str = "x") -> TxnReply:
        reply: TxnReply = self.step(AddPartitions("q", self.now_ms, name, who, PARTS, version, connection))
        return reply

    def end(
        self, who: Producer, commit: bool = True, version: int = TV_0, connection: int = 1, name: str = "x"
    ) -> TxnReply:
        reply: TxnReply = self.step(
            EndTxn("q", self.now_ms, name, who, commit, version, connection=connection)
        )
        if reply.needs_id:
            self.next_id += 1
            reply = self.step(EndTxn("q", self.now_ms, name, who, commit, version, self.next_id, connection))
        return reply

    def time_out(self, name: str = "x") -> None:
        self.step(TimerFired(self.now_ms, name, self.core.deadlines[name]))

    def state(self, name: str = "x") -> TxnState:
        return self.core.transactions[name].state

    def loaded_again(self) -> Coordinator:
        again = Coordinator()
        again.log, again.now_ms, again.next_id = list(self.log), self.now_ms, self.next_id
        for key, value in self.log:
            again.core.replay(key, value)
            again.replayed.replay(key, value)
        for decision in again.core.on_loaded(self.now_ms):
            again.core.apply(decision)
            again._carry_out(decision)
        again.core.check()
        return again


def test_a_transaction_from_its_beginning_to_its_end() -> None:
    on = Coordinator()
    who = on.producer()
    assert who == Producer(101, 0)
    assert on.state() is TxnState.EMPTY
    assert on.add(who).error is E.NONE
    on.writes_markers = False
    assert on.end(who).error is E.NONE
    assert on.state() is TxnState.PREPARE_COMMIT
    assert on.markers == [WriteMarkers("x", who, True, PARTS, TV_0)]
    assert on.add(who).error is E.CONCURRENT_TRANSACTIONS
    assert on.init().error is E.CONCURRENT_TRANSACTIONS
    assert on.end(who).error is E.CONCURRENT_TRANSACTIONS
    assert on.end(who, commit=False).error is E.CONCURRENT_TRANSACTIONS
    on.finish()
    assert on.state() is TxnState.COMPLETE_COMMIT
    assert on.end(who).error is E.NONE  # the answer was lost, and the request repeated
    assert on.end(who, commit=False).error is E.INVALID_TXN_STATE


def test_a_new_producer_aborts_and_fences_the_one_before() -> None:
    on = Coordinator()
    zombie = on.producer()
    on.add(zombie)
    assert on.init().error is E.CONCURRENT_TRANSACTIONS
    assert on.state() is TxnState.COMPLETE_ABORT
    heir = on.producer()
    assert heir == Producer(101, 2)
    for reply in (on.add(zombie), on.end(zombie), on.end(zombie, commit=False), on.end(zombie, version=TV_2)):
        assert reply.error is E.PRODUCER_FENCED
    assert on.init(expected=zombie).error is E.PRODUCER_FENCED
    assert on.add(heir).error is E.NONE
    assert on.init(expected=zombie).error is E.PRODUCER_FENCED
    assert on.state() is TxnState.ONGOING


def test_who_is_unknown_is_told_so() -> None:
    on = Coordinator()
    assert on.add(Producer(1, 0)).error is E.INVALID_PRODUCER_ID_MAPPING
    assert on.end(Producer(1, 0)).error is E.INVALID_PRODUCER_ID_MAPPING
    who = on.producer()
    assert on.add(Producer(who.producer_id + 1, 0)).error is E.INVALID_PRODUCER_ID_MAPPING
    assert on.end(who).error is E.INVALID_TXN_STATE


def test_a_producer_that_goes_on_keeps_its_id() -> None:
    on = Coordinator()
    who = on.producer()
    first = on.init(expected=who)
    assert (first.producer_id, first.epoch) == (who.producer_id, 1)
    again = on.init(expected=who)  # the answer was lost
    assert (again.producer_id, again.epoch) == (who.producer_id, 1)
    on.init()  # another producer
    assert on.init(expected=Producer(who.producer_id, 1)).error is E.PRODUCER_FENCED


def test_a_time_out_aborts_and_fences() -> None:
    on = Coordinator()
    who = on.producer()
    on.add(who)
    assert on.core.deadlines == {"x": 61_000}
    on.time_out()
    assert on.state() is TxnState.COMPLETE_ABORT
    assert on.end(who).error is E.PRODUCER_FENCED
    assert not on.core.deadlines


@pytest.mark.parametrize("commit", [True, False])
def test_every_end_raises_the_epoch_for_new_clients(commit: bool) -> None:
    on = Coordinator()
    who = on.producer()
    on.add(who, TV_2)
    on.writes_markers = False
    reply = on.end(who, commit, TV_2)
    assert (reply.producer_id, reply.epoch) == (who.producer_id, who.producer_epoch + 1)
    assert on.markers[0].producer.producer_epoch == 1
    assert on.end(who, commit, TV_2).error is E.CONCURRENT_TRANSACTIONS
    heir = Producer(who.producer_id, 1)
    # An empty transaction, aborted at once.
    assert on.end(heir, False, TV_2).error is E.CONCURRENT_TRANSACTIONS
    on.finish()
    reply = on.end(who, commit, TV_2)
    assert (reply.error, reply.epoch) == (E.NONE, 1)
    assert on.end(who, not commit, TV_2).error is E.INVALID_TXN_STATE
    on.add(heir, TV_2)
    # What was delayed on its way ends nothing.
    assert on.end(who, commit, TV_2).error is E.PRODUCER_FENCED
    assert on.end(who, not commit, TV_2).error is E.PRODUCER_FENCED
    assert on.state() is TxnState.ONGOING


def test_new_clients_may_abort_what_they_never_began() -> None:
    on = Coordinator()
    who = on.producer()
    assert on.end(who, True, TV_2).error is E.INVALID_TXN_STATE
    assert on.end(who, False, TV_2).epoch == 1
    assert on.state() is TxnState.COMPLETE_ABORT
    assert on.end(Producer(who.producer_id, 1), False, TV_2).epoch == 2


def test_a_new_client_whose_transaction_timed_out_is_fenced_not_repeated() -> None:
    on = Coordinator()
    who = on.producer()
    on.add(who, TV_2)
    on.time_out()
    assert on.end(who, True, TV_2).error is E.PRODUCER_FENCED
    assert on.end(who, False, TV_2).error is E.PRODUCER_FENCED


def test_a_late_request_of_an_older_connection_ends_nothing() -> None:
    on = Coordinator()
    who = on.producer()
    on.add(who, connection=5)
    # The answer is lost; the client connects again, repeats its request and begins the next transaction.
    assert on.end(who, connection=6).error is E.NONE
    assert on.add(who, connection=6).error is E.NONE
    late = on.end(who, connection=5)
    assert late.is_stale
    assert on.state() is TxnState.ONGOING
    assert on.add(who, connection=5).is_stale or on.state() is TxnState.ONGOING
    assert on.end(who, connection=7).error is E.NONE
    # Another producer of this id may well use an older connection.
    heir = on.producer()
    assert on.add(heir, connection=2).error is E.NONE


def exhausted(version: int) -> tuple[Coordinator, Producer]:
    on = Coordinator()
    who = on.producer()
    on.change(epoch=EPOCH_EXHAUSTED, client_version=version)
    return on, Producer(who.producer_id, EPOCH_EXHAUSTED)


def test_an_exhausted_producer_gets_a_new_id_at_its_start() -> None:
    on, who = exhausted(TV_0)
    first = on.init(expected=who)
    assert first.producer_id != who.producer_id
    assert first.epoch == 0
    again = on.init(expected=who)
    assert (again.producer_id, again.epoch) == (first.producer_id, 0)


def test_an_exhausted_producer_gets_a_new_id_at_its_end() -> None:
    on, who = exhausted(TV_2)
    on.add(who, TV_2)
    on.writes_markers = False
    reply = on.end(who, True, TV_2)
    assert reply.producer_id != who.producer_id
    assert reply.epoch == 0
    assert on.markers[0].producer == Producer(who.producer_id, EPOCH_EXHAUSTED + 1)
    assert on.end(who, True, TV_2).error is E.CONCURRENT_TRANSACTIONS
    on.finish()
    assert on.end(who, True, TV_2) == reply
    assert on.end(who, False, TV_2).error is E.INVALID_TXN_STATE
    assert on.add(who, TV_2).error is E.INVALID_PRODUCER_ID_MAPPING
    assert on.add(Producer(reply.producer_id, 0), TV_2).error is E.NONE


def test_an_exhausted_producer_can_still_be_fenced() -> None:
    for version in (TV_0, TV_2):
        on, who = exhausted(version)
        on.add(who, version)
        assert on.init().error is E.CONCURRENT_TRANSACTIONS
        assert on.end(who, False, version).error is E.PRODUCER_FENCED
        reply = on.init()
        assert reply.producer_id != who.producer_id
        assert reply.epoch == 0


@pytest.mark.parametrize(("version", "epoch"), [(TV_0, 32766), (TV_2, 32765), (TV_2, 32766)])
def test_no_client_is_given_the_last_epoch_of_all(version: int, epoch: int) -> None:
    on, who = exhausted(version)
    on.change(epoch=epoch)
    who = Producer(who.producer_id, epoch)
    on.add(who, version)
    assert on.init(expected=who).error is E.CONCURRENT_TRANSACTIONS
    assert on.core.transactions["x"].epoch == EPOCH_MAX
    impostor = Producer(who.producer_id, EPOCH_MAX)
    assert on.add(impostor, version).error is E.PRODUCER_FENCED
    assert on.end(impostor, False, version).error is E.PRODUCER_FENCED
    first, again = on.init(expected=who), on.init(expected=who)
    assert first == again
    assert first.producer_id != who.producer_id
    assert first.epoch == 0


def test_a_zombie_of_an_exhausted_id_does_not_go_on_when_the_next_one_is_exhausted() -> None:
    on, who = exhausted(TV_0)
    first = on.init(expected=who)
    on.change(epoch=EPOCH_EXHAUSTED)
    on.core.transactions["x"] = on.core.transactions["x"]._replace(last_epoch=EPOCH_EXHAUSTED - 1)
    assert on.init(expected=who).error is E.PRODUCER_FENCED
    assert on.add(Producer(first.producer_id, EPOCH_EXHAUSTED)).error is E.NONE
    assert on.init(expected=who).error is E.PRODUCER_FENCED


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [TV_0, TV_2])
def test_a_crash_before_the_markers_is_finished_when_loaded(commit: bool, version: int) -> None:
    on = Coordinator()
    who = on.producer()
    on.add(who, version)
    on.writes_markers = False
    on.end(who, commit, version)
    decided = on.markers
    again = on.loaded_again()
    assert again.state() is (TxnState.COMPLETE_COMMIT if commit else TxnState.COMPLETE_ABORT)
    unfinished = Coordinator()
    unfinished.writes_markers = False
    for key, value in on.log[:3]:
        unfinished.core.replay(key, value)
    (effect,) = [d.effects[0] for d in unfinished.core.on_loaded(0)]
    assert [effect] == decided


def test_an_open_transaction_goes_on_after_a_restart_and_still_times_out() -> None:
    on = Coordinator()
    who = on.producer()
    on.add(who)
    again = on.loaded_again()
    assert again.core.deadlines == {"x": 61_000}
    assert again.end(who).error is E.NONE
    # A wall clock that was put back makes nobody wait longer than the time-out.
    on.now_ms = 10
    assert on.loaded_again().core.deadlines == {"x": 60_010}


def test_what_is_left_to_be_written_when_the_log_is_deleted() -> None:
    on = Coordinator()
    on.add(on.producer("done"), name="done")
    on.end(Producer(101, 0), name="done")
    open_one, decided = on.producer("open"), on.producer("decided")
    on.add(open_one, name="open")
    on.add(decided, name="decided")
    on.writes_markers = False
    on.end(decided, name="decided")
    fenced = open_one._replace(producer_epoch=open_one.producer_epoch + 1)
    assert sorted(on.core.last_markers(on.now_ms), key=lambda effect: effect.transactional_id) == [
        WriteMarkers("decided", decided, True, PARTS, TV_0),
        WriteMarkers("open", fenced, False, PARTS, TV_0),
    ]
    on.core.check()  # nothing has changed


def test_a_failed_append_changes_nothing() -> None:
    on = Coordinator()
    who = on.producer()
    on.add(who)
    before = (dict(on.core.transactions), dict(on.core.owners), dict(on.core.deadlines))
    events = [
        InitProducer("q", 5, "x", 1_000),
        EndTxn("q", 5, "x", who, True),
        AddPartitions("q", 5, "x", who, frozenset({("u", 0)})),
        InitProducer("q", 5, "y", 1_000, None, 500),
    ]
    for event in events:
        decision = on.core.decide(event)
        assert decision.entries
        refused = on.core.refuse(decision, E.KAFKA_STORAGE_ERROR, 5)
        on.core.apply(refused)
        ((_, reply),) = refused.replies
        assert isinstance(reply, InitReply | TxnReply)
        assert reply.error is E.NOT_COORDINATOR
        assert (on.core.transactions, on.core.owners, on.core.deadlines) == before
    refused = on.core.refuse(on.core.decide(TimerFired(5, "x", 61_000)), E.KAFKA_STORAGE_ERROR, 5)
    on.core.apply(refused)
    assert refused.timers == (Timer("x", 10_005),)
    assert on.core.deadlines["x"] == 10_005
    assert on.state() is TxnState.ONGOING


def test_unused_ids_are_forgotten() -> None:
    on = Coordinator()
    who = on.producer()
    assert not on.core.is_expired("x", 1_999, 1_000)
    assert on.core.is_expired("x", 2_000, 1_000)
    on.add(who)
    assert not on.core.is_expired("x", 10**9, 1_000)
    on.end(who)
    on.step(ExpireTransactionalId(None, 5_000, "x"))
    assert not on.core.transactions
    assert not on.loaded_again().core.transactions
    assert on.end(who).error is E.INVALID_PRODUCER_ID_MAPPING


def test_the_table_leads_everywhere_and_nowhere_else() -> None:
    assert set(TXN_NEXT) == set(TxnState)
    on = Coordinator()
    on.producer()
    with pytest.raises(AssertionError):
        on.core.transactions["x"].become(TxnState.COMPLETE_COMMIT)


class Client:
    """A producer as the application sees it: the epoch that it believes in."""

    def __init__(self, who: Producer, version: int) -> None:
        self.who, self.version, self.connection = who, version, 0


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "end", "abort", "again", "late", "new", "on", "time", "crash", "markers"]),
        st.integers(0, 2),
    ),
    max_size=60,
)


@given(STEPS, st.sampled_from([TV_0, TV_2]))
@settings(max_examples=examples(300))
def test_only_the_newest_producer_decides(steps: list[tuple[str, int]], version: int) -> None:
    """Whatever comes in whatever order: markers name each end once decided, and one epoch has one outcome."""
    on = Coordinator()
    on.writes_markers = False
    clients: list[Client] = []
    outcomes: dict[tuple[Producer, int], bool] = {}
    serial = 0
    last_end: list[EndTxn] = []
    generation = 0
    for kind, number in steps:
        client = clients[number % len(clients)] if clients else None
        if kind == "new":
            reply = on.init()
            if reply.error is E.NONE:
                clients.append(Client(Producer(reply.producer_id, reply.epoch), version))
        elif kind == "crash":
            again = on.loaded_again()
            on.core, on.replayed, on.log, on.markers = again.core, again.replayed, again.log, again.markers
            last_end.clear()  # their connections have ended
        elif kind == "markers":
            on.finish()
        elif kind == "time" and "x" in on.core.deadlines:
            on.time_out()
        elif kind == "late" and last_end:
            ongoing = on.core.transactions["x"]
            reply = on.step(last_end[number % len(last_end)])
            if ongoing.state is TxnState.ONGOING:
                assert on.state() is TxnState.ONGOING, "a late request has ended a newer transaction"
        elif client is not None and kind == "begin":
            if on.add(client.who, version, client.connection).error is E.NONE:
                generation += 1
        elif client is not None and kind in ("end", "abort"):
            event = EndTxn("q", on.now_ms, "x", client.who, kind == "end", version, 999, client.connection)
            reply = on.step(event)
            if reply.error is E.NONE:
                # It was carried out; the client reconnects all the same, and a copy of the request stays on the way.
                serial += 1
                client.connection = serial
                on.end(client.who, kind == "end", version, client.connection)
                last_end.append(event)
                if version >= TV_2:
                    client.who = Producer(reply.producer_id, reply.epoch)
        for effect in on.markers:
            known = outcomes.setdefault((effect.producer, generation), effect.commit)
            assert known == effect.commit
        on.core.check()
