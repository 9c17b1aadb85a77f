"""What other processes can find out about a running broker: its folders, its log, its stacks."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Final

from barnabas.runtime import stacks
from barnabas.storage.dirs.log_dir import LOCK_FILE
from barnabas.terminal.errors import CliError

PATIENCE_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 0.02


def open_files(pid: int) -> list[Path]:
    """The files that a process has open; none if the system does not say (macOS)."""
    files = []
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                files.append(Path(os.readlink(f"/proc/{pid}/fd/{name}")))
    return files


def log_dirs_of(pid: int, words: list[str]) -> list[Path]:
    """The log dirs of a broker's process: those whose lock it holds, else what its command line names."""
    locked = [path.parent for path in open_files(pid) if path.name == LOCK_FILE]
    named = [Path(words[at + 1]) for at, word in enumerate(words[:-1]) if word == "--data"]
    return sorted(set(locked or named))


def log_file_of(pid: int, words: list[str]) -> Path | None:
    """The file that a process writes its log to: --log-file, else what its standard error leads to, if that is a file."""
    for at, word in enumerate(words[:-1]):
        if word == "--log-file":
            with contextlib.suppress(OSError):
                return Path(os.readlink(f"/proc/{pid}/cwd")) / words[at + 1]
            return Path(words[at + 1])
    with contextlib.suppress(OSError):
        path = Path(os.readlink(f"/proc/{pid}/fd/2"))
        return path if path.is_file() else None
    return None


def stacks_of(pid: int) -> str:
    """The stacks of a broker's threads and tasks, asked for with a signal. Raises CliError."""
    dumps = [path for path in open_files(pid) if path.name == stacks.FILE]
    if not dumps:
        raise CliError(
            f"process {pid} has no {stacks.FILE} open: it is starting, it is an older release, or this system does not "
            "show the files of processes; `kill -QUIT` makes it write them"
        )
    path = dumps[0]
    try:
        before = path.read_bytes()
        os.kill(pid, stacks.SIGNAL)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            text = path.read_text("utf-8", "replace")
            if text.encode() != before and text.endswith(f"{stacks.END}\n"):
                return text
            if time.monotonic() > deadline:
                if text.encode() == before:
                    raise CliError(
                        f"process {pid} did not answer the signal within {PATIENCE_SECONDS:g} s; is it stopped?"
                    )
                return f"{text}\nthe broker's loop did not answer within {PATIENCE_SECONDS:g} s: no tasks\n"
            time.sleep(LOOK_SECONDS)
    except OSError as error:
        raise CliError(f"process {pid}: its stacks cannot be read: {error.strerror}") from None
