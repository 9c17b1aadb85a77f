"""The brokers that this user runs on this machine, found by their processes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from barnabas.local.process_list import is_broker, node_of, processes

LOCK = ".lock"


class LocalBroker(NamedTuple):
    """A broker's process, the node id that its command line gives it, and the log dirs that it holds."""

    pid: int
    node_id: str
    command: str
    log_dirs: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = f", data in {', '.join(self.log_dirs)}" if self.log_dirs else ""
        return f"node {self.node_id} (process {self.pid}{where})"

    def uses(self, folder: Path) -> bool:
        """Whether a log dir of the broker is this folder or below it."""
        wanted = folder.resolve()
        return any(Path(log_dir).is_relative_to(wanted) for log_dir in self.log_dirs)


def brokers_here() -> list[LocalBroker]:
    """The running brokers, without those that have ended and only wait for their parent."""
    return [
        LocalBroker(pid, node_of(words), " ".join(words), held_dirs(pid))
        for pid, words in processes()
        if is_broker(words)
    ]


def held_dirs(pid: int) -> tuple[str, ...]:
    """The log dirs whose lock files a process has open; empty where the system does not say."""
    dirs = set()
    with suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                target = Path(os.readlink(entry.path))
                if target.name == LOCK:
                    dirs.add(str(target.parent))
    return tuple(sorted(dirs))


def starts(brokers: Iterable[LocalBroker]) -> list[list[LocalBroker]]:
    """The brokers by the command that started them: `barnabas start --workers N` is one command with several brokers."""
    named = {broker.pid: broker for broker in brokers}
    groups: dict[int, list[LocalBroker]] = {}
    for broker in named.values():
        root = broker.pid
        while (parent := _parent(root)) in named:
            root = parent
        groups.setdefault(root, []).append(broker)
    return list(groups.values())


def _parent(pid: int) -> int:
    """The id of a process's parent; 0 if the process has ended."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return 0
    return int(status.rpartition(")")[2].split()[1])
