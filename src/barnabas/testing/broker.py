"""One broker in this process, with its event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self, TypeVar

from barnabas.broker.server import BrokerServer
from barnabas.config import broker_groups, broker_log
from barnabas.config.loader import load
from barnabas.config.option import ConfigError
from barnabas.runtime.clock import ManualClock
from barnabas.runtime.machine import Machine
from barnabas.testing.faults import Faults
from barnabas.testing.inside import Inside

T = TypeVar("T")

DEFAULTS: Final[Mapping[str, str]] = {"offsets.topic.num.partitions": "1"}
"""Defaults that differ from those of a broker outside tests: with one partition for groups, the first group starts
faster.
"""


def checked(options: Mapping[str, str]) -> dict[str, str]:
    """A copy of the options. Raises TypeError for a value that is not a string, ConfigError for a bad value or a name
    without effect.
    """
    for name, value in options.items():
        if not isinstance(value, str):
            raise TypeError(f"{name}: {value!r} is not a string; write {str(value)!r}")
    config = load(overrides=options)
    if config.warnings:
        raise ConfigError(config.warnings[0].removeprefix("command line: "))
    return dict(options)


def remove_scratch(folder: Path, process_id: int) -> None:
    """Remove a temporary folder, unless this is a forked child of the process that made it."""
    if os.getpid() == process_id:
        shutil.rmtree(folder, ignore_errors=True)


async def compact(server: BrokerServer) -> None:
    """Compact what is due by the server's clock."""
    cleaning = server.cleaning
    if cleaning is not None and server.config.get(broker_log.LOG_CLEANER_ENABLE):
        while await cleaning.clean_once():
            pass


class Snapshot:
    """A copy of a broker's data directory; it is deleted when the broker is closed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder


class Broker:
    """A broker on a free port of 127.0.0.1, for the length of a `with` or `async with` block.

    options: Kafka's option names, with values as strings: {"num.partitions": "3"}. data_dir: a folder that is kept;
    by default a temporary one. manual_clock: the broker's clock begins now and moves by `advance` only, so sessions
    and retention never end by themselves. Raises ConfigError for an option that is unknown or has a bad value,
    TypeError for a value that is not a string; the start raises StartError.
    """

    def __init__(
        self,
        options: Mapping[str, str] | None = None,
        *,
        data_dir: Path | None = None,
        manual_clock: bool = False,
    ) -> None:
        self.clock = ManualClock(time.time_ns() // 1_000_000) if manual_clock else None
        self.faults = Faults()
        self.port = 0
        self._options = checked({**DEFAULTS, **(options or {})})
        self._own_dir = data_dir is None
        self._data_dir = data_dir
        self._scratch: Path | None = None
        self._process_id = os.getpid()
        self._snapshots = 0
        self._unchecked_ms = 0
        self._inside: Inside | None = None

    # --- start and stop --------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Stop and remove the temporary folder, as a `with` block does at its end."""
        try:
            self.stop()
        finally:
            scratch, self._scratch = self._scratch, None
            if scratch is not None:
                remove_scratch(scratch, self._process_id)
                if self._own_dir:
                    self._data_dir = None

    @property
    def bootstrap(self) -> str:
        """The value of bootstrap.servers for clients; the same after `stop` and `start`."""
        return f"127.0.0.1:{self.port}"

    @property
    def ports(self) -> dict[str, int]:
        """The port of each listener, by its name."""
        return dict(self.inside.server.ports)

    @property
    def inside(self) -> Inside:
        """The running broker's own parts. Raises RuntimeError if it does not run."""
        if self._inside is None:
            raise RuntimeError("the broker is not running")
        return self._inside

    @property
    def data_dir(self) -> Path:
        """The folder with the broker's data."""
        if self._data_dir is None:
            self._data_dir = self._scratch_dir() / "data"
        return self._data_dir

    def _scratch_dir(self) -> Path:
        if self._scratch is None:
            self._scratch = Path(tempfile.mkdtemp(prefix="barnabas-"))
            # Removes the folder also for callers of start and stop that never call close.
            weakref.finalize(self, remove_scratch, self._scratch, self._process_id)
        return self._scratch

    def start(self) -> None:
        """Start the broker; returns when it accepts connections. Raises StartError, RuntimeError if it is running."""
        if self._inside is not None:
            raise RuntimeError("the broker is already running")
        texts = {
            "log.dirs": str(self.data_dir),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            **self._options,
        }
        machine = None if self.clock is None else Machine(clock=self.clock)
        self._inside = Inside(BrokerServer(load(overrides=texts), machine=machine))
        self.port = next(iter(self.ports.values()))
        self.faults.attach(self._inside.server, self._inside.call)

    def stop(self) -> None:
        """Stop cleanly; the data is kept for another `start`."""
        inside, self._inside = self._inside, None
        # A forked child has a copy of this object, but not the thread that runs the broker, which is the parent's.
        if inside is not None and os.getpid() == self._process_id:
            inside.stop()

    def restart(self) -> None:
        """Stop and start again on the same port, as an upgrade would."""
        self.stop()
        self.start()

    # --- time ------------------------------------------------------------------------------------------

    def advance(self, by_ms: int) -> None:
        """Move the manual clock. When this returns, what was due is done: sessions have ended, old segments are
        deleted, topics are compacted, offsets have expired. Raises ValueError for a negative step, RuntimeError without
        a manual clock.
        """
        if by_ms < 0:
            raise ValueError(f"the clock cannot be moved back, by_ms is {by_ms}")
        clock = self.clock
        if clock is None:
            raise RuntimeError("only the clock of Broker(manual_clock=True) can be moved")
        inside = self.inside
        server, services = inside.server, inside.server.services
        self._unchecked_ms += by_ms
        expire = self._unchecked_ms >= server.config.get(broker_groups.OFFSETS_RETENTION_CHECK_INTERVAL_MS)
        if expire:
            self._unchecked_ms = 0

        def move() -> None:
            clock.advance(by_ms)
            self.faults.on_time_moved(clock.now_ms())
            services.groups.poll_timers()
            services.partitions.forget_idle_producers()
            services.shares.poll_timers()

        inside.call(move)
        if expire:
            inside.wait_for(services.groups.expire_offsets())
        inside.wait_for(services.partitions.delete_old_segments())
        inside.wait_for(compact(server))

    # --- snapshots -------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """A copy of all data at this moment; clients notice nothing."""
        self._snapshots += 1
        folder = self._scratch_dir() / f"snapshot-{self._snapshots}"
        # On the broker's thread nothing is half-written: a copy is what a crash would leave behind.
        self.inside.call(lambda: shutil.copytree(self.data_dir, folder))
        return Snapshot(folder)

    def restore(self, snapshot: Snapshot) -> None:
        """Put the data back as it was and restart on the same port; clients reconnect by themselves."""
        self.stop()
        shutil.rmtree(self.data_dir, ignore_errors=True)
        shutil.copytree(snapshot.folder, self.data_dir)
        self.start()
