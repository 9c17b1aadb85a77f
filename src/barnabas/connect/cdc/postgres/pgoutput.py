"""What PostgreSQL's output plugin pgoutput sends, decoded: messages of logical replication, protocol version 1. No I/O.

Values stay texts, as the server's output functions write them; `types.py` makes values of them. Source: PostgreSQL's manual,
"Logical Replication Message Formats". Numbers are big-endian, strings end with a zero byte.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

EPOCH_US: Final = 946_684_800_000_000
"""Microseconds from 1970 to 2000, where PostgreSQL's clock begins."""


class DecodeError(Exception):
    """The stream is not what pgoutput writes."""


class Unchanged:
    """Stands for a large value that was not changed and therefore not sent (TOAST)."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged()
Value = str | None | Unchanged


@dataclass(frozen=True, slots=True)
class Column:
    """key: part of the replica identity. modifier: length or precision and scale of the type; -1 without."""

    name: str
    type_id: int
    modifier: int
    key: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as it is from here on. identity: d (primary key), n (nothing), f (full), i (an index)."""

    id: int
    schema: str
    name: str
    identity: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class TypeName:
    """The name of a type that is not built in."""

    id: int
    schema: str
    name: str


@dataclass(frozen=True, slots=True)
class Begin:
    """final_lsn: where the transaction's commit is. at_us: microseconds since 1970."""

    final_lsn: int
    at_us: int
    transaction_id: int


@dataclass(frozen=True, slots=True)
class Commit:
    """lsn: where the commit is; end_lsn: where the next transaction may begin."""

    lsn: int
    end_lsn: int
    at_us: int


@dataclass(frozen=True, slots=True)
class Origin:
    lsn: int
    name: str


@dataclass(frozen=True, slots=True)
class Insert:
    relation_id: int
    after: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Update:
    """before: the whole old row with identity f, the old key if it was changed, or None."""

    relation_id: int
    before: tuple[Value, ...] | None
    after: tuple[Value, ...]
    before_is_key: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """before: the whole old row with identity f, otherwise its key and None in the other columns."""

    relation_id: int
    before: tuple[Value, ...]
    before_is_key: bool = False


@dataclass(frozen=True, slots=True)
class Truncate:
    relation_ids: tuple[int, ...]
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """Written with pg_logical_emit_message."""

    transactional: bool
    lsn: int
    prefix: str
    content: bytes


Message = Begin | Commit | Origin | Relation | TypeName | Insert | Update | Delete | Truncate | LogicalMessage


class _Reader:
    __slots__ = ("data", "place")

    def __init__(self, data: bytes) -> None:
        self.data, self.place = data, 0

    def take(self, form: str) -> int:
        value: int
        (value,) = struct.unpack_from(form, self.data, self.place)
        self.place += struct.calcsize(form)
        return value

    def byte(self) -> int:
        self.place += 1
        return self.data[self.place - 1]

    def text(self) -> str:
        end = self.data.index(0, self.place)
        raw = self.data[self.place : end]
        self.place = end + 1
        return raw.decode("utf-8", "replace")

    def raw(self, size: int) -> bytes:
        if size < 0 or self.place + size > len(self.data):
            raise DecodeError(f"a value of {size} bytes does not fit a message of {len(self.data)}")
        self.place += size
        return self.data[self.place - size : self.place]

    def row(self) -> tuple[Value, ...]:
        values: list[Value] = []
        for _ in range(self.take("!h")):
            kind = self.byte()
            if kind == 0x74:  # t
                values.append(self.raw(self.take("!i")).decode("utf-8", "replace"))
            elif kind == 0x6E:  # n
                values.append(None)
            elif kind == 0x75:  # u
                values.append(UNCHANGED)
            else:
                raise DecodeError(f"unknown kind of value {chr(kind)!r}")
        return tuple(values)


def decode(data: bytes) -> Message:
    """The message in the payload of one XLogData. Raises DecodeError."""
    reader = _Reader(data)
    try:
        kind = chr(reader.byte())
        read = _READERS.get(kind)
        if read is None:
            raise DecodeError(f"unknown kind of message {kind!r}")
        return read(reader)
    except (struct.error, IndexError, ValueError) as error:
        raise DecodeError(f"a message is cut off: {data[:40]!r}") from error


def _begin(reader: _Reader) -> Begin:
    return Begin(reader.take("!Q"), reader.take("!q") + EPOCH_US, reader.take("!I"))


def _commit(reader: _Reader) -> Commit:
    reader.byte()
    return Commit(reader.take("!Q"), reader.take("!Q"), reader.take("!q") + EPOCH_US)


def _origin(reader: _Reader) -> Origin:
    return Origin(reader.take("!Q"), reader.text())


def _relation(reader: _Reader) -> Relation:
    relation_id, schema, name = reader.take("!I"), reader.text(), reader.text()
    identity = chr(reader.byte())
    columns = []
    for _ in range(reader.take("!h")):
        flags = reader.byte()
        column, type_id, modifier = reader.text(), reader.take("!I"), reader.take("!i")
        columns.append(Column(column, type_id, modifier, bool(flags & 1)))
    return Relation(relation_id, schema or "pg_catalog", name, identity, tuple(columns))


def _type(reader: _Reader) -> TypeName:
    return TypeName(reader.take("!I"), reader.text(), reader.text())


def _expect_new(reader: _Reader) -> tuple[Value, ...]:
    kind = chr(reader.byte())
    if kind != "N":
        raise DecodeError(f"expected a new row, found {kind!r}")
    return reader.row()


def _insert(reader: _Reader) -> Insert:
    return Insert(reader.take("!I"), _expect_new(reader))


def _update(reader: _Reader) -> Update:
    relation_id = reader.take("!I")
    kind = chr(reader.data[reader.place])
    before = None
    if kind in "KO":
        reader.byte()
        before = reader.row()
    return Update(relation_id, before, _expect_new(reader), kind == "K")


def _delete(reader: _Reader) -> Delete:
    relation_id, kind = reader.take("!I"), chr(reader.byte())
    return Delete(relation_id, reader.row(), kind == "K")


def _truncate(reader: _Reader) -> Truncate:
    count, options = reader.take("!i"), reader.byte()
    return Truncate(tuple(reader.take("!I") for _ in range(count)), bool(options & 1), bool(options & 2))


def _message(reader: _Reader) -> LogicalMessage:
    flags, lsn, prefix = reader.byte(), reader.take("!Q"), reader.text()
    return LogicalMessage(bool(flags & 1), lsn, prefix, reader.raw(reader.take("!i")))


_READERS: Final[Mapping[str, Callable[[_Reader], Message]]] = {
    "B": _begin,
    "C": _commit,
    "O": _origin,
    "R": _relation,
    "Y": _type,
    "I": _insert,
    "U": _update,
    "D": _delete,
    "T": _truncate,
    "M": _message,
}


def lsn_text(lsn: int) -> str:
    """As PostgreSQL writes a position: 0/16B3748."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    """The position of a text like 0/16B3748."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)
