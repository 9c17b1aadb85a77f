"""What the transaction coordinator answers to each request in each state, as Kafka's TransactionCoordinator does.

Each coordinator has just been loaded from its log, as one that has moved to another broker. Its transactional id has
epoch 5; requests name the current epoch, the one before (what a client of KIP-890 repeats when the answer was lost), an
older or a newer one, or another producer id. PRODUCER_FENCED and the like are written "fenced"; "-" is success.

Source: the tables in Kafka's TransactionCoordinator (endTransactionWithTV1, endTransaction, handleInitProducerId,
handleAddPartitionsToTransaction, handleVerifyPartitionsInTransaction).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from barnabas.cores.decision import Producer
from barnabas.cores.transactions import (
    AddPartitions,
    EndTxn,
    InitProducer,
    MarkersWritten,
    Transaction,
    TransactionCore,
    TxnState,
)
from barnabas.cores.transactions.records import entry_of
from barnabas.cores.transactions.state import AT_REST, ENDING, EPOCH_EXHAUSTED, EPOCH_MAX, TV_0, TV_2
from barnabas.wire.errors import ApiError, ErrorCode

ID, EPOCH = 100, 5
IN_IT = ("t", 0)
OUTSIDE = ("t", 1)
WHO = {
    "current": Producer(ID, EPOCH),
    "previous": Producer(ID, EPOCH - 1),
    "older": Producer(ID, EPOCH - 2),
    "newer": Producer(ID, EPOCH + 1),
    "stranger": Producer(ID + 1, EPOCH),
}
CODES = {
    "-": ErrorCode.NONE,
    "fenced": ErrorCode.PRODUCER_FENCED,
    "invalid": ErrorCode.INVALID_TXN_STATE,
    "concurrent": ErrorCode.CONCURRENT_TRANSACTIONS,
    "abortable": ErrorCode.TRANSACTION_ABORTABLE,
    "unknown": ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}

END_BEFORE_KIP_890 = """
                 commit               abort
                 current              current
EMPTY            invalid              invalid
ONGOING          - PREPARE_COMMIT     - PREPARE_ABORT
PREPARE_COMMIT   concurrent           concurrent
PREPARE_ABORT    concurrent           concurrent
COMPLETE_COMMIT  -                    invalid
COMPLETE_ABORT   invalid              -
"""
"""All other epochs are fenced."""

END_SINCE_KIP_890 = """
                 commit     commit             abort      abort
                 previous   current            previous   current
EMPTY            fenced     invalid            fenced     - PREPARE_ABORT
ONGOING          fenced     - PREPARE_COMMIT   fenced     - PREPARE_ABORT
PREPARE_COMMIT   concurrent concurrent         concurrent concurrent
PREPARE_ABORT    concurrent concurrent         concurrent concurrent
COMPLETE_COMMIT  -          invalid            invalid    - PREPARE_ABORT
COMPLETE_ABORT   invalid    invalid            -          - PREPARE_ABORT
"""

ADD = """
                 add                  verify     verify
                 current              in         outside
EMPTY            - ONGOING            abortable  abortable
ONGOING          -                    -          abortable
PREPARE_COMMIT   concurrent           concurrent concurrent
PREPARE_ABORT    concurrent           concurrent concurrent
COMPLETE_COMMIT  - ONGOING            abortable  abortable
COMPLETE_ABORT   - ONGOING            abortable  abortable
"""

INIT = """
                 init                      init
                 new                       current
EMPTY            - EMPTY                   - EMPTY
ONGOING          concurrent PREPARE_ABORT  concurrent PREPARE_ABORT
PREPARE_COMMIT   concurrent                concurrent
PREPARE_ABORT    concurrent                concurrent
COMPLETE_COMMIT  - EMPTY                   - EMPTY
COMPLETE_ABORT   - EMPTY                   - EMPTY
"""


def loaded(state: TxnState, version: int = TV_0, **changes: Any) -> TransactionCore:
    """A coordinator with one transactional id."""
    at_rest = state in AT_REST
    known = Transaction(
        "x", ID, EPOCH, 60_000, state, 1_000, frozenset() if at_rest else frozenset({IN_IT}),
        -1 if at_rest else 1_000, client_version=version,
    )  # fmt: skip
    core = TransactionCore()
    core.replay(*entry_of(known._replace(**changes)).encode())
    for decision in core.on_loaded(2_000):
        core.apply(decision)
    core.check()
    return core


def rows(table: str) -> Iterator[tuple[str, str, TxnState, ErrorCode, TxnState]]:
    """(what, who, state, error, the state afterwards) for each cell."""
    what, who, *lines = (line.split() for line in table.strip("\n").split("\n"))
    for name, *cells in lines:
        state, column = TxnState[name], -1
        wanted: list[tuple[ErrorCode, TxnState]] = []
        for word in cells:
            if word in CODES:
                wanted.append((CODES[word], state))
            else:
                wanted[-1] = (wanted[-1][0], TxnState[word])
        assert len(wanted) == len(what) == len(who), name
        for column, (error, after) in enumerate(wanted):
            yield what[column], who[column], state, error, after


def step(core: TransactionCore, event: Any) -> Any:
    """The reply."""
    decision = core.decide(event)
    core.apply(decision)
    ((_, reply),) = decision.replies
    return reply


def end(core: TransactionCore, producer: Producer, what: str, version: int, fresh_id: int = -1) -> Any:
    event = EndTxn("q", 3_000, "x", producer, what == "commit", version, fresh_id, 1)
    reply = step(core, event)
    core.check()
    return reply


@pytest.mark.parametrize("earlier", [TV_0, TV_2])
@pytest.mark.parametrize(("version", "table"), [(TV_0, END_BEFORE_KIP_890), (TV_2, END_SINCE_KIP_890)])
def test_ends(version: int, table: str, earlier: int) -> None:
    for what, who, state, error, after in rows(table):
        core = loaded(state, earlier)
        reply = end(core, WHO[who], what, version)
        assert (reply.error, core.transactions["x"].state) == (error, after), (what, who, state.text)
        if error is ErrorCode.NONE and version == TV_2:
            raised = after is not state
            assert (reply.producer_id, reply.epoch) == (ID, EPOCH + raised), (what, who, state.text)
    named = {(what, who, state) for what, who, state, _, _ in rows(table)}
    for what in ("commit", "abort"):
        for who, producer in WHO.items():
            for state in TXN_STATES:
                if (what, who, state) not in named:
                    core = loaded(state, earlier)
                    busy = (
                        version == TV_2 and state in ENDING
                    )  # Kafka looks at the epoch afterwards (KAFKA-18464)
                    error = CODES["unknown" if who == "stranger" else "concurrent" if busy else "fenced"]
                    assert end(core, producer, what, version).error is error, (what, who, state.text)
                    assert core.transactions["x"].state is state


TXN_STATES = [
    TxnState.EMPTY, TxnState.ONGOING, TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT, TxnState.COMPLETE_COMMIT,
    TxnState.COMPLETE_ABORT,
]  # fmt: skip


@pytest.mark.parametrize("version", [TV_0, TV_2])
def test_adding_and_verifying_partitions(version: int) -> None:
    for what, who, state, error, after in rows(ADD):
        core = loaded(state, version)
        if what == "add":
            event = AddPartitions("q", 3_000, "x", WHO[who], frozenset({IN_IT}), version, 1)
            code = step(core, event).error
        else:
            where = IN_IT if who == "in" else OUTSIDE
            try:
                code = core.check_added("x", WHO["current"], [where])[where]
            except ApiError as refusal:
                code = refusal.code
        assert (code, core.transactions["x"].state) == (error, after), (what, who, state.text)
    for who, producer in WHO.items():
        for state in TXN_STATES if who != "current" else ():
            error = CODES["unknown" if who == "stranger" else "fenced"]
            core = loaded(state, version)
            event = AddPartitions("q", 3_000, "x", producer, frozenset({IN_IT}), version, 1)
            assert step(core, event).error is error, (who, state.text)
            with pytest.raises(ApiError) as refused:
                core.check_added("x", producer, [IN_IT])
            assert refused.value.code is error


def init(core: TransactionCore, expected: Producer | None, fresh_id: int = -1) -> Any:
    reply = step(core, InitProducer("q", 3_000, "x", 60_000, expected, fresh_id))
    core.check()
    return reply


def test_producers_that_begin_or_go_on() -> None:
    for _, who, state, error, after in rows(INIT):
        core = loaded(state)
        reply = init(core, None if who == "new" else WHO["current"])
        assert (reply.error, core.transactions["x"].state) == (error, after), (who, state.text)
        if error is ErrorCode.NONE:
            assert (reply.producer_id, reply.epoch) == (ID, EPOCH + 1)
    for who in ("previous", "older", "newer", "stranger"):
        for state in TXN_STATES:
            core = loaded(state)
            # Kafka also aborts an ongoing transaction for an older epoch: see docs/differences.md.
            error = CODES["concurrent" if state in ENDING else "fenced"]
            assert init(core, WHO[who]).error is error, (who, state.text)
            assert core.transactions["x"].state is state


OVERFLOW = """
                 commit     abort
                 last       last
EMPTY            fenced     fenced
ONGOING          fenced     fenced
PREPARE_COMMIT   concurrent concurrent
PREPARE_ABORT    concurrent concurrent
COMPLETE_COMMIT  -          invalid
COMPLETE_ABORT   invalid    -
"""


def test_an_end_is_repeated_after_the_producer_id_was_replaced() -> None:
    """The end of the last possible epoch gives the client another producer id, and the answer was lost."""
    for what, _, state, error, _ in rows(OVERFLOW):
        core = loaded(state, TV_2, producer_id=ID + 1, epoch=0, previous_producer_id=ID)
        reply = end(core, Producer(ID, EPOCH_EXHAUSTED), what, TV_2)
        assert reply.error is error, (what, state.text)
        assert core.transactions["x"].state is state
        if error is ErrorCode.NONE:
            assert (reply.producer_id, reply.epoch) == (ID + 1, 0)


@pytest.mark.parametrize("what", ["commit", "abort"])
@pytest.mark.parametrize("next_id", [ID + 1, -1])
def test_the_last_epoch_of_all_belongs_to_nobody(what: str, next_id: int) -> None:
    state = TxnState.PREPARE_COMMIT if what == "commit" else TxnState.PREPARE_ABORT
    core = loaded(state, TV_2, epoch=EPOCH_MAX, next_producer_id=next_id)
    for epoch in (EPOCH_EXHAUSTED, EPOCH_MAX):
        assert end(core, Producer(ID, epoch), what, TV_2).error is ErrorCode.CONCURRENT_TRANSACTIONS
    step(core, MarkersWritten("q", 4_000, "x", Producer(ID, EPOCH_MAX)))
    if next_id < 0:  # the coordinator itself ended the transaction
        for epoch in (EPOCH_EXHAUSTED, EPOCH_MAX):
            assert end(core, Producer(ID, epoch), what, TV_2).error is ErrorCode.PRODUCER_FENCED
    else:
        reply = end(core, Producer(ID, EPOCH_EXHAUSTED), what, TV_2)
        assert (reply.error, reply.producer_id, reply.epoch) == (ErrorCode.NONE, ID + 1, 0)


def test_a_producer_with_its_next_id_waits_for_the_markers_of_its_last_transaction() -> None:
    """The answer to EndTxn names the next id at once. (Kafka answers INVALID_PRODUCER_ID_MAPPING, which is fatal.)"""
    core = loaded(TxnState.PREPARE_COMMIT, TV_2, epoch=EPOCH_MAX, next_producer_id=ID + 1)
    next_one = Producer(ID + 1, 0)
    event = AddPartitions("q", 3_000, "x", next_one, frozenset({OUTSIDE}), TV_2, 1)
    assert step(core, event).error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert end(core, next_one, "abort", TV_2).error is ErrorCode.CONCURRENT_TRANSACTIONS
    step(core, MarkersWritten("q", 4_000, "x", Producer(ID, EPOCH_MAX)))
    assert step(core, event).error is ErrorCode.NONE


def kafka_ends(known: Transaction, producer: Producer, commit: bool, version: int) -> str:
    """What Kafka answers to EndTxn: an error of CODES, "end" when it begins to end the transaction.

    Source: TransactionCoordinator.endTransaction and endTransactionWithTV1 (Kafka 4.3), in the order of their checks. While
    markers are written, Kafka has a pending change to the Complete state; in each Prepare state it therefore finds one.
    """
    overflowed = (
        version == TV_2
        and known.previous_producer_id == producer.producer_id
        and (producer.producer_epoch, known.epoch) == (EPOCH_EXHAUSTED, 0)
    )
    retried = overflowed or (version == TV_2 and known.epoch == producer.producer_epoch + 1)
    is_current = producer.producer_epoch == known.epoch
    done = known.state in (TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT)
    if known.producer_id != producer.producer_id and not overflowed:
        return "unknown"
    if version == TV_2 and known.state in ENDING:
        return "concurrent"
    if not (is_current or (retried and done)):
        return "fenced"
    if known.state in ENDING:
        return "concurrent"
    if known.state is TxnState.ONGOING:
        return "end"
    if done and (retried or version != TV_2):
        return "-" if commit == (known.state is TxnState.COMPLETE_COMMIT) else "invalid"
    return "end" if version == TV_2 and not commit else "invalid"


EPOCHS = (0, 1, EPOCH, EPOCH_EXHAUSTED - 1, EPOCH_EXHAUSTED)
"""Of the coordinator. EPOCH_MAX has rules of its own, see above."""


@pytest.mark.parametrize("version", [TV_0, TV_2])
@pytest.mark.parametrize("state", TXN_STATES, ids=lambda state: state.text)
def test_every_end_is_answered_as_kafka_answers_it(state: TxnState, version: int) -> None:
    """State x request version x version of the transaction before x both epochs x producer ids x outcome."""
    for earlier, epoch, previous in product((TV_0, TV_2), EPOCHS, (-1, ID - 1)):
        for named, asked, commit in product((ID, ID - 1, ID + 1), range(-1, 3), (True, False)):
            for asked_epoch in {max(epoch - asked, -1), EPOCH_EXHAUSTED} - {EPOCH_MAX}:
                core = loaded(state, earlier, epoch=epoch, previous_producer_id=previous)
                known, producer = core.transactions["x"], Producer(named, asked_epoch)
                wanted = kafka_ends(known, producer, commit, version)
                reply = end(core, producer, "commit" if commit else "abort", version, fresh_id=ID + 2)
                case = (state.text, earlier, epoch, previous, producer, commit)
                assert reply.error is CODES["-" if wanted == "end" else wanted], case
                if wanted != "end":
                    assert core.transactions["x"] == known, case
                else:
                    prepared = TxnState.PREPARE_COMMIT if commit else TxnState.PREPARE_ABORT
                    assert core.transactions["x"].state is prepared, case
                    raised = epoch + (version == TV_2)
                    expected = (ID + 2, 0) if raised == EPOCH_MAX else (ID, raised)
                    assert (reply.producer_id, reply.epoch) == expected, case
