"""Sentences that are translated where they are shown, and refusals that consist of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Said:
    """A sentence with gaps: text is the English template, `{name}` a gap. The API returns it in English."""

    text: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return filled(self.text, self.values)


def said(text: str, **values: Any) -> Said:
    """A sentence; `values` fill its gaps."""
    return Said(text, values)


def filled(text: str, values: Mapping[str, Any]) -> str:
    """A template with its gaps filled. Values are not templates themselves."""
    return text.format_map(values) if values else text


class Refused(Exception):
    """A request that the console refuses. status: of HTTP. advice: what to do about it. data: that of the page nevertheless,
    so that whoever has filled its form can mend it."""

    def __init__(self, status: int, reason: Said, advice: Said | None = None) -> None:
        super().__init__(str(reason))
        self.status = status
        self.reason = reason
        self.advice = advice
        self.data: Mapping[str, Any] | None = None
