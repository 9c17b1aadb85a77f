"""Beats' own protocol, lumberjack version 2: Filebeat's and Logstash's senders send to the agent.

A sender writes a window (how many events it sends before it waits), then events as JSON, often compressed, and gets the
number of the last event that is safe. An event is safe when it is in the spool and synced.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import zlib
from dataclasses import dataclass
from typing import Final

from barnabas.agent.receivers.receiver import Event, Receiver, Tls, now_text

PAYLOAD_BYTES_MAX: Final = 64 << 20
KEEPALIVE_SECONDS: Final = 5.0
EVENTS_AT_ONCE: Final = 4096


class NotLumberjack(Exception):
    """The peer speaks something else; the connection is closed."""


@dataclass(slots=True, eq=False)
class Lumberjack(Receiver):
    """Listens at HOST:PORT."""

    listen: str = ""
    tls: Tls | None = None

    async def receive(self) -> None:
        """See Receiver."""
        server = await self.serve(self._connected, self.listen, self.tls)
        async with server:
            await server.serve_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The sender begins anew with what was not acknowledged.
        with contextlib.suppress(OSError, EOFError, NotLumberjack, zlib.error, ValueError):
            while await self._window(reader, writer):
                pass

    async def _window(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Take one window of events, and acknowledge it; False at the end of the connection."""
        head = await reader.read(1)
        if not head:
            return False
        kind = head + await reader.readexactly(1)
        if kind not in (b"2W", b"1W"):
            raise NotLumberjack
        version, size = kind[:1], struct.unpack(">I", await reader.readexactly(4))[0]
        last, taken, events = 0, 0, list[Event]()
        while taken < size:
            frames = await self._frames(reader, version)
            for number, event in frames:
                last, taken = number, taken + 1
                events.append(event)
            if len(events) >= EVENTS_AT_ONCE or taken >= size:
                await self._keep_alive(events, version, writer)
                events = []
                writer.write(version + b"A" + struct.pack(">I", last))
                await writer.drain()
        return True

    async def _keep_alive(self, events: list[Event], version: bytes, writer: asyncio.StreamWriter) -> None:
        """Write events; a sender that waits for long hears that the connection lives (acknowledgement of nothing)."""
        keeping = asyncio.ensure_future(self.keep(events))
        while True:
            done, _ = await asyncio.wait({keeping}, timeout=KEEPALIVE_SECONDS)
            if done:
                keeping.result()
                return
            writer.write(version + b"A" + struct.pack(">I", 0))
            await writer.drain()

    async def _frames(self, reader: asyncio.StreamReader, version: bytes) -> list[tuple[int, Event]]:
        """The events of the next frame, with their numbers."""
        kind = await reader.readexactly(2)
        if kind[:1] not in (b"1", b"2"):
            raise NotLumberjack
        if kind[1:] == b"C":
            size = struct.unpack(">I", await reader.readexactly(4))[0]
            if size > PAYLOAD_BYTES_MAX:
                raise NotLumberjack
            packed = await reader.readexactly(size)
            return await asyncio.to_thread(unpacked, packed)
        head = kind + await reader.readexactly(8)
        if kind[1:] != b"J":
            raise NotLumberjack  # version 1 sends its pairs compressed
        number, size = struct.unpack(">II", head[2:])
        if size > PAYLOAD_BYTES_MAX:
            raise NotLumberjack
        return [(number, event_of(await reader.readexactly(size)))]


def unpacked(packed: bytes) -> list[tuple[int, Event]]:
    """The events of a compressed frame. Raises NotLumberjack, zlib.error, ValueError."""
    unpacking = zlib.decompressobj()
    data = unpacking.decompress(packed, PAYLOAD_BYTES_MAX)
    if unpacking.unconsumed_tail:
        raise NotLumberjack
    events, at = [], 0
    try:
        while at < len(data):
            kind, number = data[at + 1 : at + 2], struct.unpack_from(">I", data, at + 2)[0]
            if kind == b"J":
                size = struct.unpack_from(">I", data, at + 6)[0]
                events.append((number, event_of(data[at + 10 : at + 10 + size])))
                at += 10 + size
            elif kind == b"D":
                event, at = pairs(data, at + 6)
                events.append((number, event))
            else:
                raise NotLumberjack
    except struct.error:
        raise NotLumberjack from None
    return events


def pairs(data: bytes, at: int) -> tuple[Event, int]:
    """The event of names and values (version 1) at a place, and where it ends. Raises struct.error."""
    count = struct.unpack_from(">I", data, at)[0]
    at += 4
    words = []
    for _ in range(2 * min(count, 10_000)):
        size = struct.unpack_from(">I", data, at)[0]
        words.append(data[at + 4 : at + 4 + size].decode("utf-8", "replace"))
        at += 4 + size
    event: Event = dict(zip(words[::2], words[1::2], strict=True))
    event["message"] = event.pop("line", event.get("message", ""))
    return {"@timestamp": now_text(), **event}, at


def event_of(data: bytes) -> Event:
    """An event as its sender has made it."""
    event = json.loads(data)
    if not isinstance(event, dict):
        event = {"message": json.dumps(event)}
    return {"@timestamp": now_text(), "message": "", **event}
