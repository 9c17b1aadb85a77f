"""Which files other processes have open for writing."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

INITIAL_PID_NAMESPACE: Final = "pid:[4026531836]"


def written_files() -> tuple[set[tuple[int, int]], bool]:
    """The files that other processes have open for writing, and whether all processes could be seen (Linux only)."""
    keys: set[tuple[int, int]] = set()
    try:
        # In a container the writer may be in another one, and under `hidepid` other users' processes are not listed.
        sees_all = os.readlink("/proc/self/ns/pid") == INITIAL_PID_NAMESPACE and os.path.isdir("/proc/1")
    except OSError:
        return keys, False
    for process in Path("/proc").glob("[0-9]*"):
        if process.name == str(os.getpid()):
            continue
        try:
            descriptors = os.listdir(process / "fd")
        except PermissionError:
            sees_all = False
            continue
        except OSError:
            continue  # it ended
        for descriptor in descriptors:
            try:
                status = os.stat(process / "fd" / descriptor)
                if stat.S_ISREG(status.st_mode) and is_writing(process / "fdinfo" / descriptor):
                    keys.add((status.st_dev, status.st_ino))
            except OSError:
                continue
    return keys, sees_all


def is_writing(info: Path) -> bool:
    """Whether a descriptor of another process was opened for writing. Raises OSError."""
    flags = next(line.split()[1] for line in info.read_text().splitlines() if line.startswith("flags:"))
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY
