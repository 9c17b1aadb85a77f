"""Puts the state of an app aside, so that it begins anew."""

from __future__ import annotations

import time
from pathlib import Path

from barnabas.streams.errors import StreamsError


def put_state_aside(checkpoints: str, name: str, *, dry: bool = False) -> Path | None:
    """Renames the checkpoints of an app; returns their new name, or None if it has none. dry: renames nothing. Raises
    StreamsError if they are not on this machine, or cannot be renamed."""
    if "://" in checkpoints and not checkpoints.startswith("file://"):
        raise StreamsError(
            f"the checkpoints {checkpoints} are not on this machine: rename the folder {name} there, and the app begins anew"
        )
    place = Path(checkpoints.removeprefix("file://")) / name
    if not place.exists():
        return None
    aside = place.with_name(f"{name}.{time.time_ns() // 1_000_000}")
    if not dry:
        try:
            place.rename(aside)
        except OSError as error:
            raise StreamsError(f"{place} cannot be renamed: {error.strerror}") from error
    return aside
