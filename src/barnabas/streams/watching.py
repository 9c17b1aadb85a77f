"""`barnabas streams run --watch`: the app is started again when its code changes.

The app runs in a process of its own, which is stopped after its micro-batch, so nothing is counted twice.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

POLL_S: Final = 0.5
Stamps = dict[Path, int]


def stamps(folder: Path) -> Stamps:
    """When each Python file of a folder, and of the packages in it, was last changed. Hidden folders, virtual environments
    and data do not count."""
    stamps_now: Stamps = {}
    waiting = [folder]
    while waiting:
        for path in waiting.pop().iterdir():
            if path.name.startswith((".", "__")) or path.is_symlink():
                continue
            if path.is_dir():
                if (path / "__init__.py").exists():
                    waiting.append(path)
            elif path.suffix == ".py":
                try:
                    stamps_now[path] = path.stat().st_mtime_ns
                except OSError:
                    continue  # it has just been removed
    return stamps_now


def changed(before: Stamps, now: Stamps) -> str | None:
    """The name of a file that was added, changed or removed; None if there is none."""
    return next((path.name for path in [*now, *before] if before.get(path) != now.get(path)), None)


def watch(command: Sequence[str], folder: Path, say: Callable[[str], None]) -> int:
    """Runs a command until Ctrl-C or SIGTERM, and again after each change of the code in a folder; if it ends by itself, it
    waits for a change. Returns its exit code."""
    stopped = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        while True:
            seen = stamps(folder)
            # In a group of its own, so that Ctrl-C on the terminal reaches it once, from here.
            process = subprocess.Popen([sys.executable, "-m", "barnabas", *command], process_group=0)
            has_reported = False
            name = None
            while not stopped and (name := changed(seen, stamps(folder))) is None:
                if process.poll() is not None and not has_reported:
                    say(f"it has ended with code {process.returncode}; it starts again when its code changes")
                    has_reported = True
                time.sleep(POLL_S)
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            code = process.wait()
            if stopped:
                return code
            say(f"{name} has changed: starting again")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
