"""What the transaction coordinator answers to each request in each state, as Kafka's TransactionCoordinator does.

Each coordinator has just been loaded from its log, as one that has moved to another broker. Its transactional id has
epoch 5; requests name the current epoch, the one before (what a client of KIP-890 repeats when the answer was lost), an
older or a newer one, or another producer id. PRODUCER_FENCED and the like are written "fenced"; "-" is success.

Source: the tables in Kafka's TransactionCoordinator (endTransactionWithTV1, endTransaction, handleInitProducerId,
handleAddPartitionsToTransaction, handleVerifyPartitionsInTransaction).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.cores.decision import Producer
from barnabas.cores.transactions import (
    AddPartitions,
    EndTxn,
    InitProducer,
    Transaction,
    TransactionCore,
    TxnState,
)
from barnabas.cores.transactions.records import entry_of
from barnabas.cores.transactions.state import AT_REST, EPOCH_EXHAUSTED, EPOCH_MAX, TV_0, TV_2
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
PREPARE_COMMIT   concurrent           invalid
PREPARE_ABORT    invalid              concurrent
COMPLETE_COMMIT  -                    invalid
COMPLETE_ABORT   invalid              -
"""
"""All other epochs are fenced."""

END_SINCE_KIP_890 = """
                 commit     commit             abort      abort
                 previous   current            previous   current
EMPTY            fenced     invalid            fenced     - PREPARE_ABORT
ONGOING          fenced     - PREPARE_COMMIT   fenced     - PREPARE_ABORT
PREPARE_COMMIT   concurrent fenced             invalid    fenced
PREPARE_ABORT    invalid    fenced             concurrent fenced
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
    core.replay(*entry_of(known._replace(**changes)))
    list(core.on_loaded(2_000))
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


def end(core: TransactionCore, producer: Producer, what: str, version: int, fresh_id: int = -1) -> Any:
    event = EndTxn("q", 3_000, "x", producer, what == "commit", version, fresh_id, 1)
    ((_, reply),) = core.step(event).replies
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
                    error = CODES["unknown" if who == "stranger" else "fenced"]
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
            ((_, reply),) = core.step(
                AddPartitions("q", 3_000, "x", WHO[who], frozenset({IN_IT}), version, 1)
            ).replies
            found = reply.error
        else:
            where = IN_IT if who == "in" else OUTSIDE
            try:
                found = core.check_added("x", WHO["current"], [where])[where]
            except ApiError as refusal:
                found = refusal.code
        assert (found, core.transactions["x"].state) == (error, after), (what, who, state.text)
    for who, producer in WHO.items():
        for state in TXN_STATES if who != "current" else ():
            error = CODES["unknown" if who == "stranger" else "fenced"]
            core = loaded(state, version)
            event = AddPartitions("q", 3_000, "x", producer, frozenset({IN_IT}), version, 1)
            assert core.step(event).replies[0][1].error is error, (who, state.text)
            with pytest.raises(ApiError) as refused:
                core.check_added("x", producer, [IN_IT])
            assert refused.value.code is error


def init(core: TransactionCore, expected: Producer | None, fresh_id: int = -1) -> Any:
    ((_, reply),) = core.step(InitProducer("q", 3_000, "x", 60_000, expected, fresh_id)).replies
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
            ending = state in (TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT) and who != "stranger"
            assert init(core, WHO[who]).error is CODES["concurrent" if ending else "fenced"], (
                who,
                state.text,
            )
            assert core.transactions["x"].state is state


OVERFLOW = """
                 commit     abort
                 last       last
EMPTY            fenced     fenced
ONGOING          fenced     fenced
PREPARE_COMMIT   fenced     fenced
PREPARE_ABORT    fenced     fenced
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
def test_the_last_epoch_of_all_belongs_to_the_client_that_asked_for_it(what: str) -> None:
    state = TxnState.PREPARE_COMMIT if what == "commit" else TxnState.PREPARE_ABORT
    last = Producer(ID, EPOCH_EXHAUSTED)
    for next_id, error in ((ID + 1, "concurrent"), (-1, "fenced")):
        core = loaded(state, TV_2, epoch=EPOCH_MAX, next_producer_id=next_id)
        assert end(core, last, what, TV_2).error is CODES[error]
