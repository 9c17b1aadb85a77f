"""systemd's journal, as `journalctl -o export` writes it; it is read on from the last entry that is in the spool."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from barnabas.agent.receivers.receiver import Event, Receiver, now_text, time_text
from barnabas.agent.receivers.syslog import SEVERITIES
from barnabas.terminal.errors import CliError

ENTRY_BYTES_MAX: Final = 64 << 20
BATCH: Final = 1000
NAMES: Final = {
    "_HOSTNAME": ("host", "hostname"),
    "_PID": ("process", "pid"),
    "_COMM": ("process", "name"),
    "_EXE": ("process", "executable"),
    "_CMDLINE": ("process", "command_line"),
    "_SYSTEMD_UNIT": ("systemd", "unit"),
    "_TRANSPORT": ("systemd", "transport"),
    "_UID": ("user", "id"),
}


@dataclass(slots=True, eq=False)
class Journal(Receiver):
    """The entries of some units, or of all. folder: of the journal's files; empty: this machine's."""

    units: tuple[str, ...] = ()
    folder: str = ""
    at_end: bool = False

    async def receive(self) -> None:
        """See Receiver."""
        program = shutil.which("journalctl")
        if program is None:
            raise CliError("there is no journalctl on this machine's PATH")
        last = self.spool.last_event() or {}
        cursor = last.get("journald", {}).get("cursor", "")
        command = [program, "-o", "export", "--follow", "--no-pager", "--quiet"]
        command += [f"--after-cursor={cursor}"] if cursor else ["--lines=0" if self.at_end else "--no-tail"]
        command += [f"--unit={unit}" for unit in self.units]
        command += [f"--directory={self.folder}"] if self.folder else []
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, limit=ENTRY_BYTES_MAX
        )
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            await self._read(process.stdout)
            complaint = (await process.stderr.read(10_000)).decode("utf-8", "replace").strip()
            raise CliError(f"journalctl has ended: {complaint or 'no reason given'}")
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()

    async def _read(self, stream: asyncio.StreamReader) -> None:
        cutter = Cutter()
        while data := await stream.read(1 << 16):
            events = cutter.feed(data)
            for start in range(0, len(events), BATCH):
                await self.keep(events[start : start + BATCH])


class Cutter:
    """Makes entries of the stream: lines `NAME=value`, or NAME, a length in 8 bytes and the value; an empty line ends
    an entry.
    """

    def __init__(self) -> None:
        self._data = b""
        self._fields: dict[str, bytes] = {}

    def feed(self, data: bytes) -> list[Event]:
        """The entries that are complete now."""
        self._data += data
        events, at, data = [], 0, self._data
        while True:
            end = data.find(b"\n", at)
            if end < 0:
                break
            line = data[at:end]
            if not line:
                if self._fields:
                    events.append(event_of(self._fields))
                self._fields = {}
                at = end + 1
                continue
            name, equals, value = line.partition(b"=")
            if equals:
                at = end + 1
            else:
                size = int.from_bytes(data[end + 1 : end + 9], "little")
                if len(data) < end + 9 or len(data) < end + 10 + size:
                    break
                value, at = data[end + 9 : end + 9 + size], end + 10 + size
            self._fields.setdefault(name.decode("ascii", "replace"), value)
        self._data = data[at:]
        return events


def event_of(fields: dict[str, bytes]) -> Event:
    """An entry with the names that Filebeat gives its fields; those that have none are under `journald.custom`."""
    texts = {name: value.decode("utf-8", "replace") for name, value in fields.items()}
    event: Event = {"@timestamp": now_text(), "message": texts.pop("MESSAGE", "")}
    micros = texts.pop("_SOURCE_REALTIME_TIMESTAMP", "") or texts.get("__REALTIME_TIMESTAMP", "")
    texts.pop("__REALTIME_TIMESTAMP", None)
    if micros.isdigit():
        event["@timestamp"] = time_text(datetime.fromtimestamp(int(micros) / 1e6, UTC))
    event["journald"] = {"cursor": texts.pop("__CURSOR", "")}
    for name, (group, inner) in NAMES.items():
        if name in texts:
            value = texts.pop(name)
            event.setdefault(group, {})[inner] = int(value) if inner == "pid" and value.isdigit() else value
    if "host" in event:
        event["host"]["name"] = event["host"]["hostname"]
    priority = texts.pop("PRIORITY", "")
    if priority.isdigit() and int(priority) < len(SEVERITIES):
        event["log"] = {"level": SEVERITIES[int(priority)], "syslog": {"priority": int(priority)}}
    if "SYSLOG_IDENTIFIER" in texts:
        event.setdefault("log", {}).setdefault("syslog", {})["appname"] = texts.pop("SYSLOG_IDENTIFIER")
    custom = {name.lower(): value for name, value in texts.items() if not name.startswith("_")}
    if custom:
        event["journald"]["custom"] = custom
    return event
