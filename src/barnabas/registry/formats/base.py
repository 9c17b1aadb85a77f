"""What the schema languages have in common. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from barnabas.registry.model import Reference


class Problem(NamedTuple):
    """Why one schema cannot read what another wrote.

    kind: Confluent's name of the change. path: the place in the schema that reads. message: a sentence on what
    differs; {new} and {old} in it stand for the two schemas. advice: what to do about it.
    """

    kind: str
    path: str
    message: str
    advice: str


class Dependency(NamedTuple):
    """A schema that another one refers to. name: as the other one names it."""

    name: str
    reference: Reference
    text: str


class Parsed(Protocol):
    """A schema that was read. canonical: its text in the one form that is stored and compared."""

    @property
    def canonical(self) -> str:
        """The text that is stored."""
        ...

    def normalized(self) -> str:
        """A text that is the same for schemas which differ in order or spelling only."""
        ...

    def problems_reading(self, writer: Parsed) -> Sequence[Problem]:
        """Why this schema cannot read what `writer` wrote; empty when it can. Both are of one language."""
        ...

    def formatted(self, style: str) -> str:
        """The text in one of the styles of the language. Raises InvalidSchema for one that it has not."""
        ...
