"""From which offset on a log lacks records that its other replicas may have, kept in its folder.

Recovery finds holes and damage once, after an unclean stop. A broker that is stopped in order before it has had a leader to
copy from must still know of them at its next start, and at any later one: the file goes when the log has been cut there, or
when it leads as the only replica in sync, so that nobody has more.
"""

from __future__ import annotations

import os
from typing import Final

from barnabas.records.units import Offset
from barnabas.storage.files import fsync_dir, remove_quietly, write_atomically

FILE: Final = "first-missing-offset-checkpoint"
VERSION: Final = "0"


def read(folder: str) -> Offset:
    """The noted offset; 0 where the note cannot be understood, so that everything is copied again. Raises OSError."""
    with open(os.path.join(folder, FILE), "rb") as file:
        lines = file.read(100).split()
    if len(lines) == 2 and lines[0] == VERSION.encode() and lines[1].isdigit():
        return Offset(int(lines[1]))
    return Offset(0)


def write(folder: str, offset: Offset) -> None:
    """Durable when it returns. Raises OSError."""
    write_atomically(os.path.join(folder, FILE), f"{VERSION}\n{offset}\n".encode())


def remove(folder: str) -> None:
    """The log lacks nothing any more: what was done to it becomes durable before the note goes. Raises OSError."""
    fsync_dir(folder)
    remove_quietly(os.path.join(folder, FILE))
