"""Turns `7d` and `1GiB` into milliseconds and bytes for options, and suggests the right name of a mistyped option."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from barnabas.config.topic_options import TOPIC
from barnabas.terminal.errors import UsageError

TIMES_MS: Final = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
SIZES: Final = {
    "b": 1, "k": 1 << 10, "kb": 1000, "kib": 1 << 10, "m": 1 << 20, "mb": 1000**2, "mib": 1 << 20,
    "g": 1 << 30, "gb": 1000**3, "gib": 1 << 30, "t": 1 << 40, "tb": 1000**4, "tib": 1 << 40,
}  # fmt: skip
NUMBER: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]+)")


def plain_value(name: str, text: str) -> str:
    """A value as the broker expects it: a time in ms, a size in bytes. Raises UsageError."""
    number = NUMBER.fullmatch(text.strip())
    units = TIMES_MS if name.endswith(".ms") else SIZES if name.endswith(".bytes") else None
    if number is None or units is None:
        return text
    kind = "time" if units is TIMES_MS else "size"
    unit = units.get(number[2].lower())
    if unit is None:
        raise UsageError(f"{name}={text}: {number[2]!r} is not a unit of {kind}; use {', '.join(units)}")
    return str(round(float(number[1]) * unit))


def topic_settings(pairs: Mapping[str, str]) -> dict[str, str]:
    """Topic options with plain values. Raises UsageError for a name that is nearly one of them."""
    for name in pairs:
        if TOPIC.find(name) is None and (
            near := get_close_matches(name, list(TOPIC.names()), n=1, cutoff=0.8)
        ):
            raise UsageError(f"{name} is not a topic option; did you mean {near[0]}?")
    return {name: plain_value(name, text) for name, text in pairs.items()}
