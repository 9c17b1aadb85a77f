"""Rows of values as bytes, and fine rows as coarse ones. A missing value is NaN."""

from __future__ import annotations

import math
import zlib
from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

NAN: Final = math.nan
VALUE_BYTES: Final = 8


class Tier(NamedTuple):
    """A resolution. step_s: time between values. slots: values in a row. keep_s: how long rows are kept."""

    step_s: int
    slots: int
    keep_s: int

    @property
    def span_s(self) -> int:
        """The time that a row covers."""
        return self.step_s * self.slots


HOUR_S: Final = 3600
DAY_S: Final = 24 * HOUR_S
TIERS: Final = (
    Tier(60, 60, DAY_S),
    Tier(5 * 60, 60, 4 * DAY_S),
    Tier(30 * 60, 30, 15 * DAY_S),
)
"""The finest first. The span of each is a multiple of the span of the one before."""


def pack(values: Sequence[float]) -> bytes:
    """The values in little space: the bytes of the same place in all numbers stand together, where they are often equal."""
    raw = array("d", values).tobytes()
    return zlib.compress(b"".join(raw[i::VALUE_BYTES] for i in range(VALUE_BYTES)), 6)


def unpack(packed: bytes) -> array[float]:
    """What `pack` packed. Raises ValueError for other bytes."""
    try:
        planes = zlib.decompress(packed)
    except zlib.error as error:
        raise ValueError(f"a row of values is damaged: {error}") from error
    count, left = divmod(len(planes), VALUE_BYTES)
    if left:
        raise ValueError(f"a row of {len(planes)} bytes is no row of values")
    raw = bytearray(len(planes))
    for i in range(VALUE_BYTES):
        raw[i::VALUE_BYTES] = planes[i * count : (i + 1) * count]
    values = array("d")
    values.frombytes(bytes(raw))
    return values


def fold(means: Sequence[float], peaks: Sequence[float], factor: int) -> tuple[list[float], list[float]]:
    """Mean and maximum of each `factor` values; NaN where all are missing."""
    coarse_means, coarse_peaks = [], []
    for start in range(0, len(means), factor):
        known = [value for value in means[start : start + factor] if value == value]
        high = [value for value in peaks[start : start + factor] if value == value]
        coarse_means.append(math.fsum(known) / len(known) if known else NAN)
        coarse_peaks.append(max(high) if high else NAN)
    return coarse_means, coarse_peaks
