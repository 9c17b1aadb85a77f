"""Syslog over UDP and TCP: RFC 5424, and what RFC 3164 describes of older senders.

Over TCP, messages end with a newline, or say their length before (RFC 6587). A message that is no syslog at all is kept
as it is: nothing is thrown away because a device writes it in its own way.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from barnabas.agent.receivers.receiver import (
    Event,
    Receiver,
    Tls,
    address,
    now_text,
    time_text,
)
from barnabas.agent.spool import SpoolFull

SEVERITIES: Final = (
    "emergency", "alert", "critical", "error", "warning", "notice", "informational", "debug",
)  # fmt: skip
FACILITIES: Final = (
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp", "ntp",
    "audit", "alert", "clock", *(f"local{i}" for i in range(8)),
)  # fmt: skip
MESSAGE_BYTES_MAX: Final = 1 << 20
BATCH: Final = 1000
QUEUE_MAX: Final = 20_000
PRIORITY: Final = re.compile(r"<(\d{1,3})>")
RFC5424: Final = re.compile(
    r"1 (?P<time>\S+) (?P<host>\S+) (?P<app>\S+) (?P<pid>\S+) (?P<id>\S+) "
    r"(?P<data>-|(?:\[(?:[^\]\"\\]|\\.|\"(?:[^\"\\]|\\.)*\")*\])+)(?: (?P<text>.*))?$",
    re.DOTALL,
)
ELEMENT: Final = re.compile(r"\[([^ \]]+)((?: [^=\]]+=\"(?:[^\"\\]|\\.)*\")*)\]")
PARAMETER: Final = re.compile(r" ([^=\]]+)=\"((?:[^\"\\]|\\.)*)\"")
RFC3164: Final = re.compile(
    r"(?P<time>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S+) (?P<host>[\w.:-]+) (?P<text>.*)$",
    re.DOTALL,
)
TAG: Final = re.compile(r"(?P<app>[\w./-]{1,64})(?:\[(?P<pid>[^\]]{1,32})\])?: ?(?P<text>.*)$", re.DOTALL)


def parse(data: bytes, peer: str, now: datetime | None = None) -> Event:
    """The event of one message. now: which year it is, for messages that do not say it."""
    text = data.decode("utf-8", "replace").rstrip("\r\n\0")
    event: Event = {"message": text, "log": {"source": {"address": peer}}, "@timestamp": now_text()}
    priority = PRIORITY.match(text)
    if priority is None or int(priority[1]) > 191:
        return event
    facility, severity = divmod(int(priority[1]), 8)
    event["log"]["level"] = SEVERITIES[severity]
    event["log"]["syslog"] = {
        "priority": int(priority[1]),
        "facility": {"code": facility, "name": FACILITIES[facility]},
        "severity": {"code": severity, "name": SEVERITIES[severity]},
    }
    rest = text[priority.end() :]
    match = RFC5424.match(rest)
    if match is not None:
        return _structured(event, match)
    event["message"] = rest
    match = RFC3164.match(rest)
    if match is not None:
        time = _old_time(match["time"], now or datetime.now().astimezone())
        if time is not None:
            event["@timestamp"] = time
        event["host"] = {"name": match["host"]}
        event["message"] = rest = match["text"]
    tag = TAG.match(rest)
    if tag is not None:
        event["message"] = tag["text"]
        event["process"] = {"name": tag["app"], **({"pid": _number(tag["pid"])} if tag["pid"] else {})}
    return event


def _structured(event: Event, match: re.Match[str]) -> Event:
    if match["time"] != "-":
        try:
            event["@timestamp"] = time_text(datetime.fromisoformat(match["time"]))
        except ValueError:
            pass
    if match["host"] != "-":
        event["host"] = {"name": match["host"]}
    process: dict[str, Any] = {}
    if match["app"] != "-":
        process["name"] = match["app"]
    if match["pid"] != "-":
        process["pid"] = _number(match["pid"])
    if process:
        event["process"] = process
    if match["id"] != "-":
        event["log"]["syslog"]["msgid"] = match["id"]
    if match["data"] != "-":
        event["log"]["syslog"]["structured_data"] = {
            element[1]: {
                name: re.sub(r"\\(.)", r"\1", value) for name, value in PARAMETER.findall(element[2])
            }
            for element in ELEMENT.finditer(match["data"])
        }
    event["message"] = (match["text"] or "").removeprefix("\ufeff")
    return event


def _number(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def _old_time(text: str, now: datetime) -> str | None:
    """A time without year and zone: the last one that this may mean, in the zone of this machine."""
    try:
        if text[0].isdigit():
            return time_text(datetime.fromisoformat(text))
        for year in (now.year + 1, now.year, now.year - 1, now.year - 4):
            try:
                time = datetime.strptime(f"{year} {text}", "%Y %b %d %H:%M:%S").replace(tzinfo=now.tzinfo)
            except ValueError:
                continue  # the 29th of February
            if (time - now).total_seconds() < 86_400:
                return time_text(time)
    except ValueError:
        pass
    return None


@dataclass(slots=True, eq=False)
class Syslog(Receiver):
    """Listens at HOST:PORT. udp, tcp: empty for neither."""

    udp: str = ""
    tcp: str = ""
    tls: Tls | None = None

    async def receive(self) -> None:
        """See Receiver."""
        loop = asyncio.get_running_loop()
        server = transport = None
        queue: asyncio.Queue[Event] = asyncio.Queue(QUEUE_MAX)
        try:
            if self.tcp:
                server = await self.serve(self._connected, self.tcp, self.tls)
            if self.udp:
                transport, _ = await loop.create_datagram_endpoint(
                    lambda: _Datagrams(self, queue), local_addr=address(self.udp)
                )
            while True:
                await self._write(queue)
        finally:
            if transport is not None:
                transport.close()
            if server is not None:
                server.close()

    async def _write(self, queue: asyncio.Queue[Event]) -> None:
        """Datagrams are written in batches; there is nobody who could wait, so those without room are counted."""
        batch = [await queue.get()]
        while len(batch) < BATCH and not queue.empty():
            batch.append(queue.get_nowait())
        try:
            await asyncio.to_thread(self.spool.write, batch, False)
        except SpoolFull:
            self.spool.dropped_total += len(batch)
            self.trouble = f"the spool is full; {self.spool.dropped_total:,} datagrams were lost"
        else:
            self.trouble = ""

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = str((writer.get_extra_info("peername") or ("",))[0])
        buffer = b""
        with contextlib.suppress(OSError):  # the sender is gone
            while data := await reader.read(1 << 16):
                messages, buffer = cut(buffer + data)
                if messages:
                    await self.keep([parse(message, peer) for message in messages])
        if buffer.strip():
            await self.keep([parse(buffer, peer)])


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, receiver: Syslog, queue: asyncio.Queue[Event]) -> None:
        self._receiver, self._queue = receiver, queue

    def datagram_received(self, data: bytes, peer: Any) -> None:
        """One datagram is one message."""
        try:
            self._queue.put_nowait(parse(data, str(peer[0])))
        except asyncio.QueueFull:
            self._receiver.spool.dropped_total += 1


def cut(data: bytes) -> tuple[list[bytes], bytes]:
    """The whole messages at the start of a stream, and the rest of it. What is too long is cut."""
    messages = []
    while data:
        counted = re.match(rb"(\d{1,7}) <", data)
        if counted is not None:
            start, size = counted.end(1) + 1, min(int(counted[1]), MESSAGE_BYTES_MAX)
            if len(data) < start + size:
                break
            messages.append(data[start : start + size])
            data = data[start + size :].lstrip(b"\n")
            continue
        end = data.find(b"\n")
        if end < 0:
            if len(data) < MESSAGE_BYTES_MAX:
                break
            end = MESSAGE_BYTES_MAX
        if data[:end].strip():
            messages.append(data[:end])
        data = data[end + 1 :]
    return messages, data
