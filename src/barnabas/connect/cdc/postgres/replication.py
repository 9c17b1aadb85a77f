"""A connection of logical replication: it creates slots and reads a slot's stream.

psycopg has no replication of its own; libpq, under it, has: after START_REPLICATION both sides send CopyData messages.
The server sends XLogData (w) and keep-alives (k), we answer with positions (r). A slot keeps the write-ahead log from the
last position that was confirmed, so only what has been stored may be confirmed.
Source: PostgreSQL's manual, "Streaming Replication Protocol".
"""

from __future__ import annotations

import select
import struct
import time
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import pq

from barnabas.connect.cdc.postgres.pgoutput import EPOCH_US, lsn_number, lsn_text

SETTINGS: Final = (
    "-c datestyle=ISO -c intervalstyle=postgres -c extra_float_digits=3 -c bytea_output=hex -c timezone=UTC"
)
"""How the server writes values as texts; the decoders know this form and no other."""
FEEDBACK_S: Final = 5.0
"""The server drops a reader that it has not heard of for wal_sender_timeout, 60 s by default."""


@dataclass(frozen=True, slots=True)
class Payload:
    """One message of the output plugin. lsn: where it is in the log; at_us: when the server sent it."""

    lsn: int
    at_us: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Slot:
    """lsn: the stream has all transactions that commit after it. snapshot: sees exactly the others."""

    name: str
    lsn: int
    snapshot: str | None


class Replication:
    """One connection, used by one thread at a time. Methods raise psycopg.Error."""

    def __init__(self, parameters: dict[str, Any]) -> None:
        self._connection = psycopg.connect(
            **{"client_encoding": "utf8", **parameters},
            replication="database",
            options=f"{parameters.get('options', '')} {SETTINGS}".strip(),
            autocommit=True,
        )
        self._pg = self._connection.pgconn
        self._confirmed = self.seen = 0
        self._last_feedback = 0.0
        self.ended = False

    def create_slot(self, name: str, plugin: str, *, temporary: bool = False) -> Slot:
        """A new slot, with a snapshot that lives until the next command on this connection."""
        kind = "TEMPORARY LOGICAL" if temporary else "LOGICAL"
        result = self._command(f'CREATE_REPLICATION_SLOT "{name}" {kind} {plugin} EXPORT_SNAPSHOT')
        values = [result.get_value(0, column) for column in range(3)]
        texts = [value.decode() if value is not None else None for value in values]
        assert texts[1] is not None
        return Slot(name, lsn_number(texts[1]), texts[2])

    def start(self, slot: str, lsn: int, options: dict[str, str]) -> None:
        """Begins to stream what commits after `lsn`, or after what was confirmed last if that is later."""
        options_text = ", ".join(
            f"\"{name}\" '{value.replace(chr(39), chr(39) * 2)}'" for name, value in options.items()
        )
        self._command(f'START_REPLICATION SLOT "{slot}" LOGICAL {lsn_text(lsn)} ({options_text})')
        self._confirmed = self.seen = lsn

    def _command(self, text: str) -> pq.abc.PGresult:
        result = self._pg.exec_(text.encode())
        if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COPY_BOTH, pq.ExecStatus.COMMAND_OK):
            raise psycopg.errors.error_from_result(result, "utf-8")
        return result

    def read(self, wait_s: float) -> Payload | None:
        """The next message; None if none came in time. The first ones after a while without reading may be old."""
        deadline = time.monotonic() + wait_s
        while True:
            self._feed_back_if_due()
            size, data = self._pg.get_copy_data(1)
            if size > 0:
                message = bytes(data)
                if message[:1] == b"w":
                    lsn, end, at_us = struct.unpack_from("!QQq", message, 1)
                    self.seen = max(self.seen, lsn, end)
                    return Payload(lsn, at_us + EPOCH_US, message[25:])
                if message[:1] == b"k":
                    end, _, wants_answer = struct.unpack_from("!QqB", message, 1)
                    self.seen = max(self.seen, end)
                    if wants_answer:
                        self.feed_back()
                continue
            if size == -1:
                self.ended = True
                result = self._pg.get_result()
                if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
                    raise psycopg.errors.error_from_result(result, "utf-8")
                raise psycopg.OperationalError("the server ended the stream; it is probably stopping")
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return None
            if select.select([self._pg.socket], [], [], min(left_s, FEEDBACK_S))[0]:
                self._pg.consume_input()

    def confirm(self, lsn: int) -> None:
        """Tells the server that everything that committed up to `lsn` is stored, so that it may forget it."""
        if lsn > self._confirmed:
            self._confirmed = lsn
            self.feed_back()

    def _feed_back_if_due(self) -> None:
        if time.monotonic() - self._last_feedback > FEEDBACK_S:
            self.feed_back()

    def feed_back(self) -> None:
        now_us = int(time.time() * 1e6) - EPOCH_US
        written = max(self.seen, self._confirmed)
        self._pg.put_copy_data(
            struct.pack("!cQQQqB", b"r", written, self._confirmed, self._confirmed, now_us, 0)
        )
        self._pg.flush()
        self._last_feedback = time.monotonic()

    def close(self) -> None:
        self._connection.close()
