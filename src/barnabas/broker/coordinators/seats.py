"""What the runtime drives: a coordinator's kind, its cores, and the seat of each core."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from barnabas.cores.decision import Decision, Entry, Event, RawEntry
from barnabas.records.compression import Codec
from barnabas.wire.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.partitions.acknowledgement import Acknowledgement
    from barnabas.broker.partitions.partition import Partition


class Core(Protocol):
    """What the runtime needs from a core; see the cores of groups, share states and transactions."""

    @property
    def deadlines(self) -> Mapping[Any, int]:
        """Timer key -> when it is due, in milliseconds of the runtime's clock."""

    def names(self) -> Iterable[str]:
        """The units (groups, transactional ids) that the core holds."""

    def decide(self, event: Event[object]) -> Decision:
        """Decide on one event. Only reads."""

    def apply(self, decision: Decision) -> None:
        """Replay the entries of a decision, which are in the log by now."""

    def refuse(self, decision: Decision, error: ErrorCode, now_ms: int) -> Decision:
        """What to apply instead of a decision whose entries could not be appended; its request is answered with `error`."""

    def replay(self, key: bytes, value: bytes | None, *, producer_id: int = -1) -> None:
        """Apply one entry of the log. producer_id: the producer, if the entry belongs to a transaction; -1 otherwise."""

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        """Apply the end of a producer's transaction."""

    def on_loaded(self, now_ms: int) -> Iterator[Decision]:
        """What remains to be done after the whole log was replayed, one piece at a time; each is applied before the next."""

    def export(self, name: str, now_ms: int) -> Iterator[Event[object]]:
        """Events that recreate one unit, as it is now, in the core of another partition."""

    def disown(self, name: str, now_ms: int) -> Iterator[Event[object]]:
        """Events that remove one unit here after another core has received it."""


C = TypeVar("C", bound=Core)


@dataclass(frozen=True)
class CoordinatorKind(Generic[C]):
    """What distinguishes one coordinator from another.

    make_core: creates the core of a partition. proof: an entry that changes nothing (see doubt.py). before_step: called
    before each event. on_effect: carries out an effect that a core has decided. on_entries: called with entries that were
    replayed or appended, and the offset of the first.
    """

    name: str
    topic: str
    make_core: Callable[[int], C]
    codec: Codec
    load_bytes: int
    proof: Entry
    before_step: Callable[[C], None] = lambda core: None
    on_effect: Callable[[Any], None] = lambda effect: None
    on_entries: Callable[[C, int, Sequence[RawEntry]], None] = lambda core, offset, entries: None


@dataclass(eq=False)
class Seat(Generic[C]):
    """One partition of the topic and its core, from loading to unloading."""

    index: int
    partition: Partition
    core: C
    is_loaded: bool = False
    is_gone: bool = False
    waiting: dict[object, Event[object]] = field(default_factory=dict)
    """Token -> event, for requests that have not been answered."""
    armed: set[Hashable] = field(default_factory=set)
    uncommitted: deque[tuple[Acknowledgement, Decision]] = field(default_factory=deque)
    """Decisions whose replies and effects wait until the high watermark covers their entries, oldest first."""
    is_appending: bool = False
    """A decision is being appended and is not applied yet."""
    refused_for: str = ""
    """Why the last change was not written, "" if it was: clients that try again at once must not fill the log."""
