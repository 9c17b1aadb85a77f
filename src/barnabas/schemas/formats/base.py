"""What the schema languages have in common. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from barnabas.schemas.errors import InvalidSchema
from barnabas.schemas.model import Reference


class TooDeep(InvalidSchema):
    """A schema is nested so deeply that it cannot be read here."""

    def __init__(self) -> None:
        super().__init__("the schema is nested too deeply")


class Problem(NamedTuple):
    """A reason why one schema cannot read data written with another.

    kind: Confluent's name of the change. path: the place in the reader's schema. message: a sentence on what differs;
    {new} and {old} in it stand for the reader's and the writer's schema. advice: what to do about it.
    """

    kind: str
    path: str
    message: str
    advice: str


class Dependency(NamedTuple):
    """A schema that another one refers to. name: what the other one calls it."""

    name: str
    reference: Reference
    text: str


class Parsed(Protocol):
    """A parsed schema. canonical: its text in the form that is stored and compared."""

    @property
    def language(self) -> str:
        """AVRO, JSON or PROTOBUF."""
        ...

    @property
    def canonical(self) -> str:
        """The text that is stored."""
        ...

    def normalized(self) -> str:
        """A text that is the same for schemas that differ only in order or spelling."""
        ...

    def field_names(self) -> Sequence[str]:
        """Names of the fields of the outermost record, object or message."""
        ...

    def formatted(self, style: str) -> str:
        """The text in one of the formats of its language. Raises InvalidSchema for an unknown one."""
        ...
