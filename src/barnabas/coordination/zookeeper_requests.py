"""Requests of ZooKeeper's protocol that kazoo lacks. kazoo sends them like its own.

A request has an opcode as its `type`, `serialize` and `deserialize`; kazoo's thread calls both.
Source: ZooKeeper 3.6's ZooDefs.OpCode, MultiOperationRecord and MultiResponse.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from barnabas.coordination.tree import Stat

NO_NODE: Final = -101
NO_AUTH: Final = -102
GET_DATA: Final = 4
GET_CHILDREN: Final = 8
_ERROR: Final = -1
_STAT: Final = struct.Struct(">qqqqiiiqiiq")
_INT: Final = struct.Struct(">i")
_OP_HEADER: Final = struct.Struct(">i?i")


def _text(value: str) -> bytes:
    data = value.encode()
    return _INT.pack(len(data)) + data


class AddWatch:
    """addWatch in mode 1: a persistent, recursive watch. kazoo only knows watches that fire once per node."""

    type: Final = 106

    def __init__(self, path: str) -> None:
        self.path = path

    def serialize(self) -> bytes:
        return _text(self.path) + _INT.pack(1)

    @staticmethod
    def deserialize(data: bytes, offset: int) -> None:
        return None


class ReadError(Exception):
    """One read of a MultiRead was refused; `code` is ZooKeeper's."""

    def __init__(self, code: int) -> None:
        super().__init__(f"ZooKeeper's error {code}")
        self.code = code


class Node(tuple[bytes, Stat, int]):
    """Data, stat and number of children."""

    __slots__ = ()


class MultiRead:
    """Data and stat of many nodes, or the names of their children, in one round trip.

    The answer has one entry for each path; None if the node does not exist.
    """

    type: Final = 22

    def __init__(self, kind: int, paths: Sequence[str]) -> None:
        """kind: GET_DATA or GET_CHILDREN."""
        self.kind = kind
        self.paths = paths

    def serialize(self) -> bytes:
        header = _OP_HEADER.pack(self.kind, False, -1)
        reads = b"".join(header + _text(path) + b"\0" for path in self.paths)
        return reads + _OP_HEADER.pack(-1, True, -1)

    def deserialize(self, data: bytes, offset: int) -> list[Node | list[str] | None]:
        answers: list[Node | list[str] | None] = []
        while True:
            kind, done, _ = _OP_HEADER.unpack_from(data, offset)
            offset += _OP_HEADER.size
            if done:
                return answers
            if kind == _ERROR:
                (code,) = _INT.unpack_from(data, offset)
                offset += 4
                if code != NO_NODE:
                    raise ReadError(code)
                answers.append(None)
            elif kind == GET_DATA:
                node, offset = _node(data, offset)
                answers.append(node)
            else:
                names, offset = _names(data, offset)
                answers.append(names)


def _node(data: bytes, offset: int) -> tuple[Node, int]:
    (length,) = _INT.unpack_from(data, offset)
    offset += 4
    content = bytes(data[offset : offset + max(length, 0)])
    offset += max(length, 0)
    czxid, mzxid, ctime, mtime, version, _, _, owner, _, children, _ = _STAT.unpack_from(data, offset)
    return Node((content, Stat(version, czxid, mzxid, ctime, mtime, owner), children)), offset + _STAT.size


def _names(data: bytes, offset: int) -> tuple[list[str], int]:
    (count,) = _INT.unpack_from(data, offset)
    offset += 4
    names: list[str] = []
    for _ in range(count):
        (length,) = _INT.unpack_from(data, offset)
        offset += 4
        names.append(bytes(data[offset : offset + length]).decode())
        offset += length
    return names, offset


def watch_event(data: bytes, offset: int) -> tuple[int, str]:
    """Type and path of a watch event, as received from the socket."""
    number, _, length = struct.unpack_from(">iii", data, offset)
    return number, bytes(data[offset + 12 : offset + 12 + length]).decode()
