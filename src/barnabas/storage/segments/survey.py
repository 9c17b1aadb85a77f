"""Examines a damaged stretch of a segment: which batches in it are whole, and which offsets they belong to.

Three kinds of damage are distinguished. Bytes that are not a batch, or fail the checksum, are skipped: the walk continues at
the next byte where a batch with a correct checksum and matching offsets begins. A whole batch with an impossible
base offset (which the checksum does not cover) gets the one that its neighbours leave exactly, or one next to a neighbour
if that differs from the written one in a single bit. What matches nowhere is left in place and not served.

Nothing is changed here: the caller applies the verdicts, or shows them (`barnabas log repair`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from enum import Enum
from itertools import accumulate, islice
from typing import Final, NamedTuple

from barnabas.records.batch import CRC_POS, HEADER_BYTES, LOG_OVERHEAD, CorruptBatch, read_header
from barnabas.records.checksum import crc32c
from barnabas.storage.batch_table import find_batch
from barnabas.storage.files import LogFile
from barnabas.storage.scan import LOOK_BYTES, Damaged, tables

SETTLED_PIECES: Final = 4
"""This many consecutive whole batches end the stretch."""
PIECES_MAX: Final = 200
GAP_MAX: Final = 1 << 24
SEARCH_BYTES: Final = 1 << 20


class Fate(Enum):
    """What is done with a piece."""

    KEPT = "kept"
    MOVED = "base offset repaired"
    LOST = "not served"


class Piece(NamedTuple):
    """A batch, or `size_bytes` bytes that are not a batch; the offsets are those written in it."""

    position: int
    size_bytes: int
    magic: int
    base_offset: int
    last_offset: int
    fault: str

    @property
    def is_whole(self) -> bool:
        return not self.fault

    @property
    def offsets(self) -> int:
        """How many offsets it spans."""
        return self.last_offset - self.base_offset + 1


class Verdict(NamedTuple):
    """A piece's fate; `base_offset` is the offset that it belongs to."""

    piece: Piece
    fate: Fate
    base_offset: int
    reason: str = ""


def survey(
    file: LogFile,
    position: int,
    size_bytes: int,
    end_offset: int,
    ceiling: int,
    *,
    exact: bool = True,
    dense: bool = False,
) -> list[Verdict]:
    """Verdicts on the pieces from byte `position` on, up to where the segment is in order again.

    end_offset: the end of the previous batch or, if not `exact`, a lower bound for this one. ceiling: the base offset of the
    next segment, or another upper bound. dense: the log was never compacted. Raises OSError.
    """
    stretch: list[Piece] = []

    def judged() -> list[Verdict]:
        verdicts = judge(stretch, end_offset, ceiling, exact=exact, dense=dense)
        return [_without_copies(file, verdict) for verdict in verdicts]

    for piece in pieces(file, position, size_bytes, end_offset, ceiling):
        stretch.append(piece)
        if len(stretch) >= PIECES_MAX or _is_settled(stretch, end_offset, ceiling):
            # The last piece was needed only to confirm the others: pieces after it may still prove it wrong.
            return [verdict for verdict in judged() if verdict.piece.position < piece.position]
    return judged()


def _without_copies(file: LogFile, verdict: Verdict) -> Verdict:
    """A batch that would be moved is lost instead if it also exists before, at its own offset: then it is a copy made by a
    file system or a tool."""
    piece = verdict.piece
    if verdict.fate is not Fate.MOVED or piece.base_offset >= verdict.base_offset:
        return verdict
    original = original_of(file, piece, file, piece.position)
    return (
        verdict
        if original is None
        else Verdict(piece, Fate.LOST, -1, f"a copy of the batch at byte {original}")
    )


def original_of(file: LogFile, piece: Piece, other: LogFile, size_bytes: int) -> int | None:
    """Where, within the first `size_bytes` of another or the same file, the same batch as a whole piece of `file` exists, at
    the offset written in it. Raises OSError."""
    body = os.pread(file.fd, piece.size_bytes, piece.position)[LOG_OVERHEAD:]
    try:
        for table in tables(other, 0, size_bytes, verified=False):
            i = table.reaching(piece.base_offset)
            if i < len(table):
                same = table.base_offset(i) == piece.base_offset and table.view(i)[LOG_OVERHEAD:] == body
                return table.position(i) if same else None
    except Damaged:
        pass
    return None


def pieces(file: LogFile, position: int, size_bytes: int, low: int, ceiling: int) -> Iterator[Piece]:
    """Whole and damaged pieces from byte `position` to the end, without gaps. Raises OSError."""
    while position < size_bytes:
        fault = "a batch is cut off"
        try:
            for table in tables(file, position, size_bytes, verified=True, first_bytes=LOOK_BYTES):
                rows = [
                    Piece(
                        table.position(i),
                        table.size(i),
                        table.magic(i),
                        table.base_offset(i),
                        table.last_offset(i),
                        "" if table.is_intact(i) else table.fault(i) or "the checksum does not hold",
                    )
                    for i in range(len(table))
                ]
                for piece, following in zip(rows, [*rows[1:], None], strict=True):
                    position = piece.position
                    if not piece.is_whole and not _is_continued(piece, following):
                        # Its length may be damaged: then there are whole batches within the claimed length.
                        end = position + piece.size_bytes
                        inside = search(file, position + 1, end, size_bytes, low, ceiling)
                        if inside is not None:
                            yield _rubbish(position, inside, piece.fault)
                            position = inside
                            break
                    yield piece
                    position += piece.size_bytes
                else:
                    continue
                break
            else:
                if position >= size_bytes:
                    return
                raise Damaged(position, fault)
        except Damaged as damage:
            following_at = search(file, position + 1, size_bytes, size_bytes, low, ceiling)
            yield _rubbish(position, size_bytes if following_at is None else following_at, str(damage))
            if following_at is None:
                return
            position = following_at


def _is_continued(piece: Piece, following: Piece | None) -> bool:
    """Whether a whole batch follows at the end of a damaged one, and at its end offset: then its length is right."""
    return following is not None and following.is_whole and following.base_offset == piece.last_offset + 1


def search(file: LogFile, start: int, end: int, size_bytes: int, low: int, ceiling: int) -> int | None:
    """The first byte in [start, end) at which a batch with a correct checksum and with offsets in [low, ceiling) begins. The
    batch may extend beyond `end`, but not beyond the file. Raises OSError."""
    while start < end:
        data = os.pread(file.fd, min(SEARCH_BYTES, end - start + HEADER_BYTES - 1, size_bytes - start), start)
        if len(data) < HEADER_BYTES:
            return None
        at = 0
        while True:
            distance = find_batch(memoryview(data)[at:], start + at, size_bytes, low, ceiling)
            if distance < 0:
                break
            at += distance
            if _holds(file, start + at):
                return start + at
            at += 1
        start += len(data) - HEADER_BYTES + 1
    return None


def _holds(file: LogFile, position: int) -> bool:
    try:
        header = read_header(os.pread(file.fd, HEADER_BYTES, position))
    except CorruptBatch:
        return False
    body = os.pread(file.fd, header.size_bytes, position)
    return len(body) == header.size_bytes and crc32c(memoryview(body)[CRC_POS + 4 :]) == header.crc


def _rubbish(start: int, end: int, why: str) -> Piece:
    return Piece(start, end - start, -1, -1, -1, why)


def _is_settled(stretch: list[Piece], end_offset: int, ceiling: int) -> bool:
    """Whether the last pieces certainly follow each other."""
    last = stretch[-SETTLED_PIECES:]
    if len(last) < SETTLED_PIECES or not all(piece.is_whole for piece in last):
        return False
    if last[0].base_offset < end_offset or last[-1].last_offset >= ceiling:
        return False
    return all(a.last_offset < b.base_offset for a, b in zip(last, islice(last, 1, None), strict=False))


def judge(
    stretch: list[Piece], end_offset: int, ceiling: int, *, exact: bool = True, dense: bool = False
) -> list[Verdict]:
    """Keep the pieces that form the longest run of increasing offsets, and assign places to the others if possible. Among
    equal runs, choose the one with which most pieces get a place, and with the fewest gaps."""
    rows = _best_rows(stretch, end_offset, ceiling)
    verdicts = min(
        (_verdicts(stretch, row, end_offset, ceiling, exact) for row in rows),
        key=lambda verdict_row: _badness(verdict_row, end_offset if exact else None),
    )
    last = verdicts[-1] if verdicts else None
    if (
        dense
        and last is not None
        and last.fate is Fate.KEPT
        and all(v.fate is not Fate.LOST for v in verdicts)
    ):
        # Nothing confirms the gap before the last batch, and without compaction there are no gaps.
        before = verdicts[-2].base_offset + verdicts[-2].piece.offsets if len(verdicts) > 1 else end_offset
        if (exact or len(verdicts) > 1) and (before ^ last.base_offset).bit_count() == 1:
            reason = f"offset {last.base_offset} where {before} belongs"
            verdicts[-1] = Verdict(last.piece, Fate.MOVED, before, reason)
    return verdicts


def _badness(verdicts: list[Verdict], end_offset: int | None) -> tuple[int, int, int]:
    """(lost pieces, gaps, moved pieces); end_offset: of the previous batch, if known."""
    placed = [verdict for verdict in verdicts if verdict.fate is not Fate.LOST]
    gaps = sum(
        a.base_offset + a.piece.offsets != b.base_offset
        for a, b in zip(placed, islice(placed, 1, None), strict=False)
    )
    gaps += bool(placed) and end_offset is not None and placed[0].base_offset != end_offset
    moved = sum(verdict.fate is Fate.MOVED for verdict in placed)
    return len(verdicts) - len(placed), gaps, moved


def _verdicts(
    stretch: list[Piece], chain: list[int], end_offset: int, ceiling: int, exact: bool
) -> list[Verdict]:
    """Keep the pieces of the chain; assign places to those between them if possible."""
    verdicts: list[Verdict] = []
    before, start = end_offset, 0
    for slot in [*chain, len(stretch)]:
        outside = slot == len(stretch)
        following = ceiling if outside else stretch[slot].base_offset
        verdicts += _between(stretch[start:slot], before, following, exact=exact or start > 0)
        if not outside:
            piece = stretch[slot]
            verdicts.append(Verdict(piece, Fate.KEPT, piece.base_offset))
            before, start = piece.last_offset + 1, slot + 1
    return verdicts


def _best_rows(stretch: list[Piece], end_offset: int, ceiling: int) -> list[list[int]]:
    """The indexes of the whole pieces to be believed: as many as possible, preferably without gaps; several lists if that
    leaves a choice."""
    best: list[tuple[int, int]] = []  # (score of the best run that ends here, its predecessor or -1)
    taken = [0, *accumulate(piece.offsets if piece.is_whole else 0 for piece in stretch)]

    def is_joined(before: int, first: int, i: int) -> bool:
        """Whether no offset is missing between `before` and piece i if those from `first` on are put in between."""
        return stretch[i].base_offset - before in (0, taken[i] - taken[first])

    for i, piece in enumerate(stretch):
        if not piece.is_whole or piece.base_offset < end_offset or piece.last_offset >= ceiling:
            best.append((-1, -1))
            continue
        score, before = 2 + is_joined(end_offset, 0, i), -1
        for j in range(i):
            if best[j][0] >= 0 and stretch[j].last_offset < piece.base_offset:
                joined = best[j][0] + 2 + is_joined(stretch[j].last_offset + 1, j + 1, i)
                if joined > score:
                    score, before = joined, j
        best.append((score, before))
    top = max((score for score, _ in best), default=-1)
    if top < 0:
        return [[]]
    rows: list[list[int]] = []
    for i, (score, _) in enumerate(best):
        if score == top:
            row, at = [], i
            while at >= 0:
                row.append(at)
                at = best[at][1]
            rows.append(row[::-1])
    return rows


def _fill_exactly(stretch: list[Piece], before: int, following: int) -> bool:
    """Whether the pieces, placed one after the other, fill all offsets from `before` to `following`. A damaged piece counts
    with the offsets in its header if they match."""
    for piece in stretch:
        if piece.magic != 2 or piece.offsets <= 0 or not (piece.is_whole or piece.base_offset == before):
            return False
        before += piece.offsets
    return before == following


def _between(stretch: list[Piece], before: int, following: int, *, exact: bool) -> Iterator[Verdict]:
    """Verdicts on pieces that are not believed, between two that are."""
    if exact and stretch and _fill_exactly(stretch, before, following):
        for piece in stretch:
            if piece.is_whole:
                yield Verdict(piece, Fate.MOVED, before, f"offset {piece.base_offset} where {before} belongs")
            else:
                yield Verdict(piece, Fate.LOST, -1, piece.fault)
            before += piece.offsets
        return
    for number, piece in enumerate(stretch):
        if not piece.is_whole:
            exact = False
            yield Verdict(piece, Fate.LOST, -1, piece.fault)
            continue
        place = -1
        if piece.magic == 2:
            behind_all = number == len(stretch) - 1
            # Without a next segment, `following` is only an upper bound.
            behind_all = behind_all and following - before < GAP_MAX
            candidates = [before] * exact + [following - piece.offsets] * behind_all
            for candidate in candidates:
                fits = before <= candidate and candidate + piece.offsets <= following
                if fits and (candidate ^ piece.base_offset).bit_count() == 1:
                    place = candidate
                    break
        if place >= 0:
            yield Verdict(piece, Fate.MOVED, place, f"offset {piece.base_offset} where {place} belongs")
            before, exact = place + piece.offsets, True
        else:
            yield Verdict(
                piece, Fate.LOST, -1, f"offset {piece.base_offset} comes between {before} and {following}"
            )
