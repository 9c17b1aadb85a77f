"""What the registry keeps: schemas, versions, settings. Plain immutable data. Pure."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final, NamedTuple

from barnabas.registry.subjects import Subject

Json = Any
AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"
TYPES: Final = (JSON, PROTOBUF, AVRO)


class Level(StrEnum):
    """Compatibility levels."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def transitive(self) -> bool:
        """Whether all versions count, or only the newest."""
        return self.value.endswith("_TRANSITIVE")

    @property
    def backward(self) -> bool:
        """Whether the new schema must read what was written with older ones."""
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def forward(self) -> bool:
        """Whether older schemas must read what is written with the new one."""
        return self.value.startswith(("FORWARD", "FULL"))


class Mode(StrEnum):
    """What may be done with a subject."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    IMPORT = "IMPORT"
    FORWARD = "FORWARD"


class Reference(NamedTuple):
    """name: as the schema names what it refers to (a type, a URL, a file)."""

    name: str
    subject: str
    version: int

    def as_json(self) -> dict[str, Json]:
        """As requests and records hold it."""
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class Content:
    """What an id stands for: a schema with what belongs to it. Equal contents have equal fingerprints."""

    type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Mapping[str, Json] | None = None
    rules: Mapping[str, Json] | None = None
    fingerprint: bytes = field(init=False, compare=True, repr=False)

    def __post_init__(self) -> None:
        rest = [[tuple(r) for r in self.references], self.metadata, self.rules]
        told = json.dumps([self.type, self.text, *rest], sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(told.encode("utf-8", "surrogatepass")).digest()
        object.__setattr__(self, "fingerprint", digest)

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    @property
    def guid(self) -> str:
        """The same for the same content in every registry of this kind."""
        return str(uuid.UUID(bytes=self.fingerprint[:16]))

    def as_json(self) -> dict[str, Json]:
        """The fields that requests, answers and records share; AVRO is not named."""
        made: dict[str, Json] = {}
        if self.type != AVRO:
            made["schemaType"] = self.type
        if self.references:
            made["references"] = [reference.as_json() for reference in self.references]
        if self.metadata:
            made["metadata"] = dict(self.metadata)
        if self.rules:
            made["ruleSet"] = dict(self.rules)
        made["schema"] = self.text
        return made


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a subject. guid: as the record says, else the content's own."""

    subject: Subject
    version: int
    id: int
    content: Content
    guid: str
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of a subject, a context or all. None: as the wider scope says."""

    alias: str | None = None
    normalize: bool | None = None
    validate_fields: bool | None = None
    validate_rules: bool | None = None
    validate_new_schemas: bool | None = None
    compatibility: Level | None = None
    compatibility_policy: str | None = None
    compatibility_group: str | None = None
    default_metadata: Mapping[str, Json] | None = None
    override_metadata: Mapping[str, Json] | None = None
    default_rules: Mapping[str, Json] | None = None
    override_rules: Mapping[str, Json] | None = None

    def over(self, wider: Config) -> Config:
        """These settings, and where they say nothing, the wider ones; an alias is not inherited."""
        merged = {}
        for part in fields(self):
            own = getattr(self, part.name)
            merged[part.name] = getattr(wider, part.name) if own is None and part.name != "alias" else own
        return Config(**merged)


DEFAULT_CONFIG: Final = Config(compatibility=Level.BACKWARD)
