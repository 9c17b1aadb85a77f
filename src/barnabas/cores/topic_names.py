"""Which topic names are legal."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

MAX_LENGTH: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def refusal(name: str) -> str | None:
    """Why a name is not legal, in Kafka's words; None if it is legal. Source: Kafka's Topic.validate."""
    why = _why(name)
    return None if why is None else f"Topic name is invalid: {why}"


def _why(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_LENGTH}"
    if not _LEGAL.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def collision(name: str, existing: Iterable[str]) -> str | None:
    """An existing topic whose metrics would have the same names, since '.' and '_' are treated alike there; or None."""
    if "." not in name and "_" not in name:
        return None
    flat = name.replace(".", "_")
    return next((other for other in existing if other != name and other.replace(".", "_") == flat), None)
