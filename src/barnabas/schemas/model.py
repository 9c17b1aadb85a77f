"""Kinds of schemas, and references between them. Pure."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

Json = Any
AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"
TYPES: Final = (JSON, PROTOBUF, AVRO)


class Reference(NamedTuple):
    """A reference to another schema. name: what the schema calls it (a type, a URL or a file)."""

    name: str
    subject: str
    version: int

    def as_json(self) -> dict[str, Json]:
        """The form that requests and records use."""
        return {"name": self.name, "subject": self.subject, "version": self.version}
