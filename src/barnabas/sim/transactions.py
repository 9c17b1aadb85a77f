"""What clients observed of transactions, and whether a Kafka that keeps its promises could have behaved like that.

Pure, as history.py: producers report what they send and how their transactions ended, read_committed readers report what
they received. The promises: a committed transaction exists completely, once, and in order, in all its partitions and with
its offset; nothing of an aborted one is ever read; one with an unknown end exists completely or not at all. The last stable
offset never goes back, and a fenced producer commits nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from barnabas.sim.history import Violation


class Outcome(Enum):
    """How a transaction has ended, as far as its producer knows."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Txn:
    """One transaction. `number` ascends within its producer."""

    producer: str
    number: int
    outcome: Outcome = Outcome.OPEN
    acked: dict[bytes, int] = field(default_factory=dict)
    """Value -> partition, for acknowledged records."""
    sent: dict[bytes, int] = field(default_factory=dict)
    offset: int | None = None
    """The offset that it commits for its producer's group, once that was acknowledged."""

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.producer} ({self.outcome.value})"


class TransactionHistory:
    """All transactions of one topic."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.violations: list[Violation] = []
        self.txns: list[Txn] = []
        self._of: dict[bytes, Txn] = {}
        self._at: dict[tuple[int, int], bytes] = {}
        self._place: dict[bytes, tuple[int, int]] = {}
        self.stable: dict[int, int] = {}
        """The greatest last stable offset reported to a client, by partition."""

    def _broken(self, rule: str, text: str) -> None:
        self.violations.append(Violation(rule, f"{self.name}: {text}"))

    # --- producing -------------------------------------------------------------------------------------

    def begin(self, producer: str, number: int) -> Txn:
        """A producer begins a transaction."""
        txn = Txn(producer, number)
        self.txns.append(txn)
        return txn

    def on_sent(self, txn: Txn, partition: int, values: Iterable[bytes]) -> None:
        """Records are about to be sent."""
        for value in values:
            txn.sent[value] = partition
            self._of[value] = txn

    def on_acked(self, txn: Txn, partition: int, values: Iterable[bytes]) -> None:
        """Records have been acknowledged."""
        txn.acked |= dict.fromkeys(values, partition)

    # --- reading ---------------------------------------------------------------------------------------

    def on_stable(self, partition: int, floor: int, stable_offset: int, reader: str) -> None:
        """`reader` received a last stable offset; `floor` was known when it asked."""
        if stable_offset < floor:
            self._broken(
                "back",
                f"{reader} was told the last stable offset {stable_offset} of {partition} after {floor}",
            )
        self.stable[partition] = max(self.stable.get(partition, 0), stable_offset)

    def on_read(self, partition: int, offset: int, value: bytes, reader: str) -> None:
        """`reader` received a committed record."""
        at = (partition, offset)
        if self._at.setdefault(at, value) != value:
            self._broken("changed", f"offset {at} was {self._at[at]!r} and is {value!r} for {reader}")
        if self._place.setdefault(value, at) != at:
            self._broken("doubled", f"{value!r} is at {self._place[value]} and at {at}")
        txn = self._of.get(value)
        if txn is None:
            self._broken("unseen", f"{reader} got {value!r} at {at}, which nobody has sent")
        elif txn.outcome is Outcome.ABORTED:
            self._broken("aborted", f"{reader} got {value!r} at {at} of {txn}")

    # --- the end ---------------------------------------------------------------------------------------

    def finish(self, content: Mapping[int, Mapping[int, bytes]], offsets: Mapping[str, int]) -> None:
        """All committed records, read again at the end, and the committed offset of each producer's group."""
        for partition, records in content.items():
            newest: dict[str, tuple[int, int]] = {}
            for offset in sorted(records):
                value = records[offset]
                self.on_read(partition, offset, value, "the last reader")
                txn = self._of.get(value)
                if txn is None:
                    continue
                order = (txn.number, list(txn.sent).index(value))
                if order < newest.get(txn.producer, order):
                    self._broken("reordered", f"{value!r} at {offset} comes after {newest[txn.producer]}")
                newest[txn.producer] = order
        there = {value for records in content.values() for value in records.values()}
        for txn in self.txns:
            self._judge(txn, there, offsets)
        for at, value in self._at.items():
            if content.get(at[0], {}).get(at[1]) != value:
                self._broken("lost", f"{value!r} was read at {at} and is there no more")

    def _judge(self, txn: Txn, there: set[bytes], offsets: Mapping[str, int]) -> None:
        values_there = [value for value in txn.sent if value in there]
        missing = [value for value in txn.acked if value not in there]
        if txn.outcome is Outcome.COMMITTED and missing:
            self._broken("lost", f"{txn}: {missing[:3]} is missing")
        if txn.outcome is Outcome.OPEN and values_there:
            self._broken("aborted", f"{txn}: {values_there[:3]} is visible")
        if txn.outcome is Outcome.UNKNOWN and values_there and missing:
            self._broken("torn", f"{txn}: {values_there[:3]} is visible and {missing[:3]} is not")
        if txn.offset is None:
            return
        committed = offsets.get(txn.producer, -1)
        visible = txn.outcome is Outcome.COMMITTED or (bool(values_there) and txn.outcome is Outcome.UNKNOWN)
        if visible and committed < txn.offset:
            self._broken("torn", f"{txn}: its records are visible, its offset is not: {committed}")
        if txn.acked and not values_there and committed == txn.offset:
            self._broken("torn", f"{txn}: its offset {committed} is visible, its records are not")
