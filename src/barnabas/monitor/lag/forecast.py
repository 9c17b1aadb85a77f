"""When a group will have caught up, if it goes on as it did."""

from __future__ import annotations

from collections.abc import Sequence

LOOKS_MIN = 2


def caught_up_ms(looks: Sequence[tuple[int, int]]) -> int | None:
    """The time, in ms, at which the lag will be 0; None if it is not shrinking, or if there are not two looks yet.

    looks: (time in ms, lag in records), in order of time. The lag is continued along the line that fits best (least
    squares). A lag of 0 has been caught up at the time of the look.
    """
    if not looks:
        return None
    last_ms, last = looks[-1]
    if last == 0:
        return last_ms
    if len(looks) < LOOKS_MIN:
        return None
    middle_ms = sum(at for at, _ in looks) / len(looks)
    middle = sum(lag for _, lag in looks) / len(looks)
    spread = sum((at - middle_ms) ** 2 for at, _ in looks)
    if not spread:
        return None
    slope = sum((at - middle_ms) * (lag - middle) for at, lag in looks) / spread
    return None if slope >= 0 else last_ms + round(last / -slope)
