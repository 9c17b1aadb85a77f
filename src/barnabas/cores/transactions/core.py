"""TransactionCore: every transactional id whose name hashes to one partition of `__transaction_state`.

Driven by `broker/coordinators/runtime.py`. An event produces at most one entry, and its replay is the only way in which a
transactional id changes. Writes to other partitions are an effect, which is released when the entry is committed and
returns as MarkersWritten.

Source: Kafka's TransactionCoordinator; KIP-98, KIP-360, KIP-890. While Kafka has a pending state until its record is
replicated, this core moves to the new state once it is appended, and the runtime holds back every answer that would show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from barnabas.cores.decision import (
    REFUSAL_FOR_APPEND_ERROR,
    Decision,
    DoneReply,
    Entry,
    Event,
    Note,
    Producer,
    Timer,
    TimerFired,
    refusal_of,
    set_deadlines,
)
from barnabas.cores.transactions import records
from barnabas.cores.transactions.events import (
    AddPartitions,
    EndTxn,
    ExpireTransactionalId,
    InitProducer,
    InitReply,
    MarkersWritten,
    TxnReply,
    WriteMarkers,
)
from barnabas.cores.transactions.state import (
    AT_REST,
    ENDING,
    EPOCH_EXHAUSTED,
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    TV_2,
    TopicPartition,
    Transaction,
    TxnState,
)
from barnabas.wire.errors import ApiError, ErrorCode

RETRY_AFTER_FAILED_APPEND_MS: Final = 10_000


@dataclass(slots=True)
class Outcome:
    """What was decided: the new value of the transactional id (None: unchanged), the reply, and all else to be done."""

    become: Transaction | None = None
    reply: object = None
    effects: tuple[WriteMarkers, ...] = ()
    notes: tuple[Note, ...] = ()
    forget: str | None = None


class TransactionCore:
    """See the module."""

    def __init__(self, retry_after_failed_append_ms: int = RETRY_AFTER_FAILED_APPEND_MS) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.owners: dict[int, str] = {}
        """Producer id -> transactional id."""
        self.deadlines: dict[str, int] = {}
        """When the ongoing transactions time out."""
        self._retry_ms = retry_after_failed_append_ms
        self._connections: dict[str, tuple[Producer, int]] = {}
        """By transactional id: the producer whose requests carry no new epoch, and the newest connection that they came on.
        Not stored: a connection does not outlive its broker."""

    # --- reading

    def find(self, transactional_id: str) -> Transaction | None:
        """The stored value of a transactional id, or None."""
        return self.transactions.get(transactional_id)

    def owner_of(self, producer_id: int) -> Transaction | None:
        """The transactional id that a producer id belongs to."""
        name = self.owners.get(producer_id)
        return None if name is None else self.transactions.get(name)

    def is_expired(self, transactional_id: str, now_ms: int, expiration_ms: int) -> bool:
        """Whether a transactional id has not been used for `expiration_ms` and has no ongoing transaction."""
        known = self.transactions.get(transactional_id)
        return known is not None and known.state in AT_REST and now_ms - known.updated_ms >= expiration_ms

    # --- serving

    def decide(self, event: Event[object]) -> Decision:
        """Decide on one event. Nothing changes until the decision is applied.

        A stale TimerFired returns an empty Decision.
        """
        if type(event) is TimerFired and self.deadlines.get(event.key) != event.deadline_ms:
            return Decision(event)
        try:
            outcome = self._decide(event)
        except ApiError as refusal:
            reply = event.refused(refusal.code)
            if isinstance(reply, InitReply | TxnReply):
                reply = type(reply)(refusal.code, refusal.message)
            outcome = Outcome(reply=reply)
        return self._decision(event, outcome)

    def apply(self, decision: Decision) -> None:
        """The decision's entry is in the log: replay it."""
        for key, value, _ in decision.entries:
            self._put(*records.read(key, value))
        if decision.remember is not None:
            decision.remember()
        set_deadlines(self.deadlines, decision.timers)

    def refuse(self, decision: Decision, error: ErrorCode, now_ms: int) -> Decision:
        """What to apply instead of a decision whose entry could not be appended."""
        return refusal_of(decision, REFUSAL_FOR_APPEND_ERROR.get(error, error), now_ms + self._retry_ms)

    def _decide(self, event: Event[object]) -> Outcome:
        match event:
            case AddPartitions():
                return self._add_partitions(event)
            case EndTxn():
                return self._end(event)
            case MarkersWritten():
                return self._complete(event)
            case InitProducer():
                return self._init(event)
            case TimerFired():
                return self._time_out(event)
            case ExpireTransactionalId():
                return self._expire(event)
            case _:
                raise AssertionError(f"no event of transactions: {type(event).__name__}")

    def _decision(self, event: Event[object], outcome: Outcome) -> Decision:
        entries: tuple[Entry, ...] = ()
        timers: tuple[Timer, ...] = ()
        new = outcome.become
        if new is not None:
            entries = (records.entry_of(new),)
            name, deadline_ms = new.transactional_id, None
            if new.state is TxnState.ONGOING:
                deadline_ms = new.started_ms + new.timeout_ms
            if self.deadlines.get(name) != deadline_ms:
                timers = (Timer(name, deadline_ms),)
        elif outcome.forget is not None:
            entries = (records.tombstone_of(outcome.forget),)

        replies = () if event.token is None else ((event.token, outcome.reply),)
        return Decision(
            event,
            entries,
            replies,
            timers,
            notes=outcome.notes,
            effects=outcome.effects,
            remember=lambda: self._remember(event, new),
        )

    def _remember(self, event: Event[object], new: Transaction | None) -> None:
        """What no entry says: the epoch before the last one, and the connection that the producer uses."""
        if new is not None and new.last_epoch != NO_EPOCH:
            stored = self.transactions[new.transactional_id]
            self.transactions[new.transactional_id] = stored._replace(last_epoch=new.last_epoch)
        if isinstance(event, AddPartitions | EndTxn) and _may_come_late(event):
            known = self.transactions.get(event.transactional_id)
            if known is not None and _producer(known) == event.producer and not self._came_late(event):
                self._connections[event.transactional_id] = (event.producer, event.connection)

    def _put(self, name: str, new: Transaction | None) -> None:
        old = self.transactions.get(name)
        if old is not None and (new is None or new.producer_id != old.producer_id):
            self.owners.pop(old.producer_id, None)
        if new is None:
            self.transactions.pop(name, None)
            self._connections.pop(name, None)
        else:
            self.owners[new.producer_id] = name
            self.transactions[name] = new

    # --- InitProducerId

    def _init(self, event: InitProducer) -> Outcome:
        known = self.transactions.get(event.transactional_id)
        if known is None:
            if event.fresh_id == NO_PRODUCER_ID:
                return Outcome(reply=InitReply(needs_id=True))
            new = Transaction(
                event.transactional_id, event.fresh_id, 0, event.timeout_ms, TxnState.EMPTY, event.now_ms
            )
            return self._given_out(new)
        if known.state in ENDING:
            raise _concurrent(known)
        expected = event.expected
        if expected is not None and not _may_go_on(known, expected):
            raise _fenced(known, expected)
        if known.state is TxnState.ONGOING:
            if expected is not None and expected.producer_epoch != known.epoch:
                raise _fenced(known, expected)
            # Abort what the previous producer left open. A new producer is not given the resulting epoch: it retries and
            # gets the one after it. A producer that continues gets that epoch when it retries.
            last_epoch = NO_EPOCH if expected is None else known.epoch
            outcome = self._abort(known, event.now_ms, "a producer was initialized", last_epoch)
            outcome.reply = InitReply(
                ErrorCode.CONCURRENT_TRANSACTIONS,
                f"the transaction that {known.transactional_id!r} had under way is aborted: try again",
            )
            return outcome
        if known.is_exhausted and (expected is None or expected.producer_epoch == _last_given(known)):
            if event.fresh_id == NO_PRODUCER_ID:
                return Outcome(reply=InitReply(needs_id=True))
            last_epoch = NO_EPOCH if expected is None else expected.producer_epoch
            return self._given_out(
                _at_rest(known, event).become(
                    TxnState.EMPTY,
                    producer_id=event.fresh_id,
                    epoch=0,
                    previous_producer_id=known.producer_id,
                    last_epoch=last_epoch,
                )
            )
        if expected is None or expected.producer_epoch == known.epoch:
            last_epoch = NO_EPOCH if expected is None else known.epoch
            return self._given_out(
                _at_rest(known, event).become(TxnState.EMPTY, epoch=known.epoch + 1, last_epoch=last_epoch)
            )
        if expected.producer_epoch == known.last_epoch:  # the answer to the same request was lost
            return self._given_out(_at_rest(known, event).become(TxnState.EMPTY))
        raise _fenced(known, expected)

    def _given_out(self, new: Transaction) -> Outcome:
        return Outcome(new, InitReply(producer_id=new.producer_id, epoch=new.epoch))

    # --- AddPartitionsToTxn, AddOffsetsToTxn, the first write

    def _add_partitions(self, event: AddPartitions) -> Outcome:
        known = self._require_newest(event.transactional_id, event.producer)
        if known.state in ENDING:
            raise _concurrent(known)
        if self._came_late(event):
            return Outcome(reply=_left_behind())
        if known.state is TxnState.ONGOING and event.partitions <= known.partitions:
            return Outcome(reply=TxnReply())
        ongoing = known.state is TxnState.ONGOING
        return Outcome(
            known.become(
                TxnState.ONGOING,
                partitions=known.partitions | event.partitions if ongoing else event.partitions,
                started_ms=known.started_ms if ongoing else event.now_ms,
                updated_ms=event.now_ms,
                client_version=max(event.version, known.client_version) if ongoing else event.version,
            ),
            TxnReply(),
        )

    def check_added(
        self, transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """The answer to an AddPartitionsToTxn that only verifies. Raises ApiError if the whole request is refused."""
        known = self._require_newest(transactional_id, producer)
        if known.state in ENDING:
            raise _concurrent(known)
        in_it = known.partitions if known.state is TxnState.ONGOING else frozenset()
        return {
            partition: ErrorCode.NONE if partition in in_it else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        }

    def _require(self, transactional_id: str, producer: Producer) -> Transaction:
        known = self.transactions.get(transactional_id)
        if known is not None and known.state in ENDING and producer == (known.next_producer_id, 0):
            raise _concurrent(
                known
            )  # the answer to the last EndTxn has given the client the id to continue with
        if known is None or known.producer_id != producer.producer_id:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"transactional id {transactional_id!r} does not have producer id {producer.producer_id}",
            )
        return known

    def _require_newest(self, transactional_id: str, producer: Producer) -> Transaction:
        known = self._require(transactional_id, producer)
        if producer.producer_epoch != known.epoch or known.epoch == EPOCH_MAX:  # no client is given EPOCH_MAX
            raise _fenced(known, producer)
        return known

    def _came_late(self, event: AddPartitions | EndTxn) -> bool:
        """Whether a request may belong to an earlier transaction and have been under way for long.

        Before KIP-890 all transactions of a producer share one epoch, so a request to end one looks like a request to end
        the next. However, requests of one connection arrive in order, and a client that gets no answer repeats its request
        on a new connection. So a client has given up any request on a connection older than another one that its producer
        has used since.
        """
        producer, newest = self._connections.get(event.transactional_id, (None, -1))
        return _may_come_late(event) and producer == event.producer and event.connection < newest

    # --- EndTxn

    def _end(self, event: EndTxn) -> Outcome:
        known = self.transactions.get(event.transactional_id)
        if event.version >= TV_2:
            return self._end_and_raise_epoch(event, known)
        known = self._require_newest(event.transactional_id, event.producer)
        if self._came_late(event):
            return Outcome(reply=_left_behind())
        match known.state:
            case TxnState.ONGOING:
                return self._prepare(known, event, epoch=known.epoch)
            case TxnState.COMPLETE_COMMIT | TxnState.COMPLETE_ABORT if _ends_alike(known, event.commit):
                return Outcome(reply=TxnReply(producer_id=known.producer_id, epoch=known.epoch))
            case TxnState.PREPARE_COMMIT | TxnState.PREPARE_ABORT:
                raise _concurrent(known)
        _refuse_end(known, event.commit)

    def _end_and_raise_epoch(self, event: EndTxn, known: Transaction | None) -> Outcome:
        """KIP-890: the client continues with the next epoch, so that late requests are recognized by their old epoch."""
        epoch = event.producer.producer_epoch
        overflowed = (
            known is not None
            and known.previous_producer_id == event.producer.producer_id
            and epoch == EPOCH_EXHAUSTED
            and known.epoch == 0
        )
        if known is None or not overflowed:
            known = self._require(event.transactional_id, event.producer)
        # Before any look at the epoch: the client has been given the next epoch as soon as the end was decided, and may
        # end its next transaction, an empty one for example, while markers of this one are still being written.
        if known.state in ENDING:
            raise _concurrent(known)
        repeated = known.epoch == epoch + 1 and known.epoch != EPOCH_MAX  # EPOCH_MAX fences the producer
        if (repeated or overflowed) and known.state in (TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT):
            if _ends_alike(known, event.commit):
                return Outcome(reply=TxnReply(producer_id=known.producer_id, epoch=known.epoch))
            _refuse_end(known, event.commit)
        if epoch != known.epoch or epoch == EPOCH_MAX:
            raise _fenced(known, event.producer)
        if known.state is not TxnState.ONGOING and event.commit:
            _refuse_end(known, event.commit)
        if known.is_exhausted and event.fresh_id == NO_PRODUCER_ID:
            return Outcome(reply=TxnReply(needs_id=True))
        return self._prepare(known, event, epoch=epoch + 1)

    def _prepare(self, known: Transaction, event: EndTxn, *, epoch: int) -> Outcome:
        raised = epoch != known.epoch
        new = known.become(
            TxnState.PREPARE_COMMIT if event.commit else TxnState.PREPARE_ABORT,
            epoch=epoch,
            last_epoch=known.epoch if raised else known.last_epoch,
            next_producer_id=event.fresh_id if raised and known.is_exhausted else NO_PRODUCER_ID,
            partitions=known.partitions if known.state is TxnState.ONGOING else frozenset(),
            started_ms=known.started_ms if known.state is TxnState.ONGOING else event.now_ms,
            updated_ms=event.now_ms,
            client_version=event.version,
        )
        after = _completed(new, event.now_ms)
        return Outcome(new, TxnReply(producer_id=after.producer_id, epoch=after.epoch), (_markers(new),))

    def _complete(self, event: MarkersWritten) -> Outcome:
        known = self.transactions.get(event.transactional_id)
        if known is None or known.state not in ENDING or _producer(known) != event.producer:
            return Outcome(reply=DoneReply())  # done already
        return Outcome(_completed(known, event.now_ms), DoneReply())

    # --- ends that the producer has not asked for

    def _abort(self, known: Transaction, now_ms: int, why: str, last_epoch: int = NO_EPOCH) -> Outcome:
        """Fence the producer and abort its transaction.

        For a producer of KIP-890, an epoch increased by one would look like an end that it had requested: it is increased by
        two.
        """
        raised = known.epoch + (2 if known.client_version >= TV_2 else 1)
        fenced = known.become(
            TxnState.PREPARE_EPOCH_FENCE,
            epoch=min(raised, EPOCH_MAX),
            last_epoch=last_epoch,
            updated_ms=now_ms,
        )
        new = fenced.become(TxnState.PREPARE_ABORT)
        note = Note(
            "a transaction is aborted and its producer fenced",
            {
                "transactional_id": known.transactional_id,
                "producer_id": known.producer_id,
                "epoch": known.epoch,
                "partitions": len(known.partitions),
                "why": why,
            },
        )
        return Outcome(new, None, (_markers(new),), (note,))

    def _time_out(self, event: TimerFired) -> Outcome:
        known = self.transactions[event.key]
        return self._abort(known, event.now_ms, f"it took longer than {known.timeout_ms} ms")

    def _expire(self, event: ExpireTransactionalId) -> Outcome:
        known = self.transactions.get(event.transactional_id)
        if known is None or known.state not in AT_REST:
            return Outcome(reply=DoneReply())
        note = Note("an unused transactional id is forgotten", {"transactional_id": known.transactional_id})
        return Outcome(reply=DoneReply(), notes=(note,), forget=known.become(TxnState.DEAD).transactional_id)

    # --- loading

    def names(self) -> Iterable[str]:
        """The transactional ids of this partition."""
        return list(self.transactions)

    def replay(self, key: bytes, value: bytes | None, *, producer_id: int = -1) -> None:
        """Apply one entry of the log. Raises CorruptRecord if it cannot be decoded."""
        entry = records.decode(key, value)
        if entry is not None:
            self._put(*records.read(*entry))

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        """Transactional ids are never part of a transaction."""

    def on_loaded(self, now_ms: int) -> Iterator[Decision]:
        """Complete what a crash has interrupted, and set the time-outs of ongoing transactions."""
        for known in list(self.transactions.values()):
            if known.state in ENDING:
                yield Decision(effects=(_markers(known),))
            elif known.state is TxnState.ONGOING:
                # At most one full time-out from now, whatever the wall clock has done meanwhile.
                deadline = min(known.started_ms, now_ms) + known.timeout_ms
                yield Decision(timers=(Timer(known.transactional_id, deadline),))

    def last_markers(self, now_ms: int) -> Iterator[WriteMarkers]:
        """The markers to write when this core's log is deleted: those of decided ends, and aborts of all other ongoing
        transactions."""
        for known in self.transactions.values():
            if known.state in ENDING:
                yield _markers(known)
            elif known.state is TxnState.ONGOING:
                yield from self._abort(known, now_ms, "its coordinator's topic was deleted").effects

    def export(self, name: str, now_ms: int) -> Iterator[Any]:
        """Nothing: no version has ever stored a transactional id in another partition than Kafka does."""
        return iter(())

    def disown(self, name: str, now_ms: int) -> Iterator[Any]:
        """See `export`."""
        return iter(())

    def check(self) -> None:
        """Assert the invariants; for tests and the simulation."""
        for name, known in self.transactions.items():
            assert name == known.transactional_id
            assert self.owners[known.producer_id] == name
            assert 0 <= known.epoch <= EPOCH_MAX
            assert known.state is not TxnState.PREPARE_EPOCH_FENCE
            assert (name in self.deadlines) == (known.state is TxnState.ONGOING)
            assert known.partitions or known.state is not TxnState.PREPARE_COMMIT
            if known.state in AT_REST:
                assert not known.partitions
                assert known.next_producer_id == NO_PRODUCER_ID
        assert len(self.owners) == len(self.transactions)


def _may_come_late(event: AddPartitions | EndTxn) -> bool:
    """Whether the epoch of a request does not tell to which transaction it belongs."""
    return event.version < TV_2 and event.connection >= 0


def _may_go_on(known: Transaction, expected: Producer) -> bool:
    """Whether a producer that asks to continue is the last one with this id; its epoch is checked later."""
    if expected.producer_id == known.producer_id:
        return True
    # The answer with the new id was lost, and no other request has come since.
    retried = expected.producer_id == known.previous_producer_id
    return retried and known.epoch == 0 and expected.producer_epoch == known.last_epoch


def _last_given(known: Transaction) -> int:
    """The newest epoch that a client was given: EPOCH_MAX is only used to fence the one before."""
    return known.last_epoch if known.epoch == EPOCH_MAX else known.epoch


def _at_rest(known: Transaction, event: InitProducer) -> Transaction:
    return known._replace(
        timeout_ms=event.timeout_ms,
        partitions=frozenset(),
        started_ms=NO_TIME,
        updated_ms=event.now_ms,
        next_producer_id=NO_PRODUCER_ID,
    )


def _completed(preparing: Transaction, now_ms: int) -> Transaction:
    """The state after all markers have been written."""
    committed = preparing.state is TxnState.PREPARE_COMMIT
    new = preparing.become(
        TxnState.COMPLETE_COMMIT if committed else TxnState.COMPLETE_ABORT,
        partitions=frozenset(),
        updated_ms=now_ms,
    )
    if new.next_producer_id == NO_PRODUCER_ID:
        return new
    return new._replace(
        producer_id=new.next_producer_id,
        epoch=0,
        previous_producer_id=new.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )


def _markers(preparing: Transaction) -> WriteMarkers:
    return WriteMarkers(
        preparing.transactional_id,
        _producer(preparing),
        preparing.state is TxnState.PREPARE_COMMIT,
        preparing.partitions,
        preparing.client_version,
    )


def _producer(known: Transaction) -> Producer:
    return Producer(known.producer_id, known.epoch)


def _ends_alike(known: Transaction, commit: bool) -> bool:
    return commit == (known.state in (TxnState.PREPARE_COMMIT, TxnState.COMPLETE_COMMIT))


def _left_behind() -> TxnReply:
    return TxnReply(
        ErrorCode.INVALID_TXN_STATE,
        "the request came on a connection that its producer has left behind",
        is_stale=True,
    )


def _fenced(known: Transaction, producer: Producer) -> ApiError:
    return ApiError(
        ErrorCode.PRODUCER_FENCED,
        f"transactional id {known.transactional_id!r} is at epoch {known.epoch} of producer id {known.producer_id}; "
        f"epoch {producer.producer_epoch} of producer id {producer.producer_id} is fenced",
    )


def _concurrent(known: Transaction) -> ApiError:
    return ApiError(
        ErrorCode.CONCURRENT_TRANSACTIONS,
        f"the last transaction of {known.transactional_id!r} is still being ended: try again",
    )


def _refuse_end(known: Transaction, commit: bool) -> NoReturn:
    wanted = "committed" if commit else "aborted"
    raise ApiError(
        ErrorCode.INVALID_TXN_STATE,
        f"transactional id {known.transactional_id!r} is in state {known.state.text}: there is nothing to be {wanted}",
    )
