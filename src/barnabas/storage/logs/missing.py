"""Notes, in a log's folder, the offset from which the log lacks records that its other replicas may have.

Recovery finds holes and damage only once, after an unclean stop. If the broker is stopped cleanly before it could copy from
a leader, it must still know of them at all later starts. The file is removed when the log has been truncated there, or when
this replica becomes leader as the only one in sync, so that no replica has more.
"""

from __future__ import annotations

import os
from typing import Final

from barnabas.records.units import Offset
from barnabas.storage.files import fsync_dir, remove_quietly, write_atomically

FILE: Final = "first-missing-offset-checkpoint"
VERSION: Final = "0"


def read(folder: str) -> Offset:
    """The noted offset; 0 if the file is unreadable, so that everything is copied again. Raises OSError."""
    with open(os.path.join(folder, FILE), "rb") as file:
        lines = file.read(100).split()
    if len(lines) == 2 and lines[0] == VERSION.encode() and lines[1].isdigit():
        return Offset(int(lines[1]))
    return Offset(0)


def write(folder: str, offset: Offset) -> None:
    """Note an offset; durable on return. Raises OSError."""
    write_atomically(os.path.join(folder, FILE), f"{VERSION}\n{offset}\n".encode())


def remove(folder: str) -> None:
    """Remove the note: nothing is missing any more. Changes of the log are made durable first. Raises OSError."""
    fsync_dir(folder)
    remove_quietly(os.path.join(folder, FILE))
