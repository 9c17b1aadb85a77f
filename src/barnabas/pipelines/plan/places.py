"""Where a part of a plan was written, for messages and for the headers of dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

ASIDE: Final[Mapping[str, bool]] = {"aside": True}
"""Marks fields that no fingerprint has: secrets, and what may change without other rows, see fingerprint.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """label: by which dead letters name it, `2 parse`. where: file and line, or what stands for them. output: the output
    that it belongs to; None for what is common to all outputs."""

    label: str = ""
    where: str = field(default="", compare=False)
    output: str | None = None
