"""What clients observed of a broker, and whether a Kafka that keeps its promises could have behaved like that.

Pure state machines: clients report what they send, what is acknowledged and what they read, in the order in which it
happens; impossible observations are recorded as a `Violation`. Nothing here does I/O or knows of the simulation, so
that the same rules can judge a real cluster.

The promises of a single node: an acknowledged record survives the end of the process; it survives a power cut only
if it was on disk by then (`flush.messages=1`). An idempotent producer's records exist once and in order. The record at
an offset never changes. The ends of a log, as seen by a client, never go back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

NEVER: Final = 1 << 62
NOTHING: Final = -1
"""The offset of a group that has committed nothing."""


LATE_S: Final = 1.5
"""The longest time of a fetch on a network and a disk without trouble."""
KEPT: Final = 50
"""Number of commits that an offset fetch may still return, if it began before the next commit."""


class Violation(NamedTuple):
    """A broken promise."""

    rule: str
    """One of: lost, doubled, reordered, changed, unseen, skipped, back, late, commit, fenced, aborted, torn,
    stuck, failed."""
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


class Sent(NamedTuple):
    """One record that a producer has sent, perhaps several times."""

    run: str
    """The producer; a new run for each producer id that it received."""
    number: int
    """Ascending within the run and partition."""
    idempotent: bool
    key: bytes | None


class Read(NamedTuple):
    """A record as received by a consumer."""

    offset: int
    value: bytes


@dataclass(slots=True)
class PartitionHistory:
    """Everything that is known of one partition."""

    name: str
    compacted: bool = False
    sent: dict[bytes, Sent] = field(default_factory=dict)
    at: dict[int, bytes] = field(default_factory=dict)
    """The value at each offset, from acknowledgements and reads."""
    acked: dict[int, bool] = field(default_factory=dict)
    """Acknowledged offsets; True if the record was on disk by then."""
    acked_s: dict[int, float] = field(default_factory=dict)
    """When each offset was first acknowledged."""
    place: dict[bytes, int] = field(default_factory=dict)
    """The offsets of records of idempotent producers."""
    start: int = 0
    """The greatest log start reported to a client."""
    watermark: int = 0
    """The greatest high watermark that a client can know."""
    holes: set[int] = field(default_factory=set)
    """Offsets below the log's end whose records were lost in a power cut."""
    violations: list[Violation] = field(default_factory=list)

    def _broken(self, rule: str, text: str) -> None:
        self.violations.append(Violation(rule, f"{self.name}: {text}"))

    # --- producing -------------------------------------------------------------------------------------

    def on_sent(self, values: Iterable[bytes], sent: Sent) -> None:
        """A producer is about to send `values`; the first has the number in `sent`."""
        for step, value in enumerate(values):
            self.sent[value] = sent._replace(number=sent.number + step)

    def on_acked(self, base_offset: int, values: Sequence[bytes], *, on_disk: bool, now_s: float) -> None:
        """The broker has acknowledged `values`, from `base_offset` on."""
        for offset, value in enumerate(values, base_offset):
            self._note(offset, value, "acknowledged")
            self.acked_s.setdefault(offset, now_s)
            self.acked[offset] = self.acked.get(offset, False) or on_disk
        self.watermark = max(self.watermark, base_offset + len(values))

    def _note(self, offset: int, value: bytes, how: str) -> None:
        known = self.at.get(offset)
        if known is not None and known != value:
            self._broken("changed", f"offset {offset} was {known!r} and is {how} as {value!r}")
        self.at[offset] = value
        sent = self.sent.get(value)
        if sent is None:
            self._broken("unseen", f"offset {offset} is {how} as {value!r}, which nobody has sent")
        elif sent.idempotent:
            first = self.place.setdefault(value, offset)
            if first != offset:
                self._broken("doubled", f"{value!r} of {sent.run} is at {first} and, {how}, at {offset}")

    # --- reading ---------------------------------------------------------------------------------------

    def on_read(self, position: int, records: Sequence[Read], reader: str) -> int:
        """`reader` read from `position` and received `records` (earlier ones left out); returns the next position."""
        for offset, value in records:
            if offset < position:
                self._broken("back", f"{reader} got offset {offset} when it asked from {position} on")
                continue
            if not self.compacted and not self.holes.issuperset(range(position, offset)):
                self._broken("skipped", f"{reader} got offset {offset} where {position} was next")
            self._note(offset, value, "read")
            position = offset + 1
        return position

    def on_waited(self, records: Sequence[Read], asked_s: float, now_s: float, reader: str) -> None:
        """`reader` asked at `asked_s` and received `records` now: it must not wait for records that already exist."""
        if records:
            there_s = max(asked_s, self.acked_s.get(records[0].offset, now_s))
            if now_s - there_s > LATE_S:
                self._broken(
                    "late",
                    f"{reader} got offset {records[0].offset} {now_s - there_s:.1f} s after it could have",
                )

    def on_watermark(self, floor: int, watermark: int, reader: str) -> None:
        """`reader` received a high watermark; `floor` was known when it asked."""
        if watermark < floor:
            self._broken("back", f"{reader} was told the high watermark {watermark} after {floor}")
        self.watermark = max(self.watermark, watermark)

    def on_log_start(self, floor: int, log_start: int, reader: str) -> None:
        """As `on_watermark`, for the log's start."""
        if log_start < floor:
            self._broken("back", f"{reader} was told the log start {log_start} after {floor}")
        self.start = max(self.start, log_start)

    def on_out_of_range(self, position: int, start: int, floor: int, reader: str) -> None:
        """`reader` was refused at `position` and received the log's start; `floor` as above."""
        if start <= position <= floor:
            self._broken("lost", f"{reader} was refused at offset {position}; the log reached {floor}")

    def is_read_from(self, position: int) -> bool:
        """Whether nothing is left to read from `position` on."""
        return position >= self.watermark or self.holes.issuperset(range(position, self.watermark))

    # --- faults ----------------------------------------------------------------------------------------

    def on_killed(self) -> None:
        """The process was killed. A log's start is stored in a checkpoint, so it may go back."""
        self.start = 0

    def on_power_cut(self, log_end: int, left: Mapping[int, bytes], *, lied: bool) -> None:
        """The log now ends at `log_end` and contains `left`. lied: the disk had only claimed to have written.

        A lost file between others leaves a hole, as in Kafka.
        """
        for offset in sorted(offset for offset in self.at if offset not in left):
            value = self.at.pop(offset)
            self.place.pop(value, None)
            self.acked_s.pop(offset, None)
            if self.acked.pop(offset, False) and not lied and not self.compacted:
                self._broken(
                    "lost",
                    f"{value!r} at {offset} was on the disk; after the power cut the log ends at {log_end}",
                )
        self.holes = set() if self.compacted else set(range(log_end)) - left.keys()
        for offset, value in left.items():
            self._note(offset, value, "recovered")
        self.start = 0
        self.watermark = min(self.watermark, log_end)

    # --- the end ---------------------------------------------------------------------------------------

    def finish(self, start: int, end: int, content: Mapping[int, bytes]) -> None:
        """The whole log, read again at the end when everything is quiet."""
        self._require_kept(start, end, content)
        last: dict[str, tuple[int, bytes]] = {}
        for offset in sorted(content):
            value = content[offset]
            sent = self.sent.get(value)
            if sent is None or not sent.idempotent:
                continue
            number, before = last.get(sent.run, (-1, b""))
            if sent.number < number:
                self._broken(
                    "reordered", f"{value!r} at {offset} comes after {before!r} of the same {sent.run}"
                )
            last[sent.run] = (sent.number, value)

    def _require_kept(self, start: int, end: int, content: Mapping[int, bytes]) -> None:
        if self.compacted:
            newest: dict[bytes | None, int] = {}
            for offset in sorted(self.at):
                sent = self.sent.get(self.at[offset])
                if sent is not None:
                    newest[sent.key] = offset
            expected = {offset: self.at[offset] for offset in newest.values()}
        else:
            expected = self.at
        for offset, value in expected.items():
            if offset < start or content.get(offset) == value:
                continue
            how = "acknowledged" if offset in self.acked else "read"
            present = content.get(offset)
            if offset in self.acked or present is not None or offset < end:
                self._broken(
                    "lost",
                    f"{value!r} was {how} at {offset}; there is {present!r} now, the log is {start} to {end}",
                )


class Commit:
    """One attempt to commit an offset. done: when it was acknowledged; NEVER: the outcome is unknown."""

    __slots__ = ("begun", "done", "offset")

    def __init__(self, offset: int, begun: int) -> None:
        self.offset = offset
        self.begun = begun
        self.done = NEVER


class CommitHistory:
    """The committed offset of one group and partition. Reads must return the last commit, or one in progress."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.violations: list[Violation] = []
        self._commits: list[Commit] = [Commit(NOTHING, 0)]
        self._commits[0].done = 0
        self._now = 0

    def _tick(self) -> int:
        self._now += 1
        return self._now

    def begin(self, offset: int) -> Commit:
        """A commit is about to be sent."""
        commit = Commit(offset, self._tick())
        self._commits.append(commit)
        return commit

    def acked(self, commit: Commit) -> None:
        commit.done = self._tick()
        if len(self._commits) > 2 * KEPT:
            # Unknown commits that are old can no longer be read; recent ones may still arrive.
            old = [c for c in self._commits[:-KEPT] if c.done == NEVER]
            self._commits = old + self._commits[-KEPT:]

    def refused(self, commit: Commit) -> None:
        """The broker has refused the commit."""
        if commit in self._commits:
            self._commits.remove(commit)

    @property
    def newest(self) -> int:
        """The offset of the last acknowledged commit."""
        acked = [c for c in self._commits if c.done < NEVER]
        return max(acked, key=lambda c: c.done).offset if acked else NOTHING

    def begin_read(self) -> int:
        """A read is about to be sent; returns the argument for `on_read`."""
        return self._tick()

    def on_read(self, offset: int, begun: int, reader: str) -> None:
        """`reader` received `offset`."""
        over = max((c.begun for c in self._commits if c.done < begun), default=0)
        if not any(c.offset == offset and c.done >= over for c in self._commits):
            self.violations.append(
                Violation("commit", f"{self.name}: {reader} got {offset} where {self.newest} was committed")
            )

    def on_power_cut(self) -> None:
        """Commits may be lost, back to any earlier one."""
        for commit in self._commits:
            commit.done = NEVER
        self._commits.append(Commit(NOTHING, 0))


class GenerationHistory:
    """The generations of one classic group: members of older generations can no longer commit."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.violations: list[Violation] = []
        self.newest = -1

    def on_synced(self, generation: int) -> None:
        """A member has received its assignment for this generation."""
        self.newest = max(self.newest, generation)

    def on_commit_acked(self, generation: int, newest_before: int, member: str) -> None:
        """A commit was acknowledged. newest_before: the value of `newest` when it was sent."""
        if generation < newest_before:
            self.violations.append(
                Violation(
                    "fenced",
                    f"{self.name}: {member} committed in generation {generation} after {newest_before} had begun",
                )
            )

    def on_power_cut(self) -> None:
        self.newest = -1
