"""The registry's data: schemas, versions and settings, as immutable values. Pure."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Final

from barnabas.registry.subjects import Subject
from barnabas.schemas.model import AVRO, Json, Reference


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
        """Whether a new schema is compared with all versions, not only with the newest."""
        return self.value.endswith("_TRANSITIVE")

    @property
    def backward(self) -> bool:
        """Whether the new schema must be able to read data written with older ones."""
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def forward(self) -> bool:
        """Whether older schemas must be able to read data written with the new one."""
        return self.value.startswith(("FORWARD", "FULL"))


class Mode(StrEnum):
    """Which operations a subject, a context or the whole registry permits."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    IMPORT = "IMPORT"
    FORWARD = "FORWARD"


@dataclass(frozen=True, slots=True)
class Content:
    """What an id identifies: a schema, its references, metadata and rules. Equal contents have equal fingerprints."""

    type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Mapping[str, Json] | None = None
    rules: Mapping[str, Json] | None = None
    fingerprint: bytes = field(init=False, compare=True, repr=False)

    def __post_init__(self) -> None:
        rest = [[tuple(r) for r in self.references], self.metadata, self.rules]
        canonical = json.dumps([self.type, self.text, *rest], sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).digest()
        object.__setattr__(self, "fingerprint", digest)

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    @property
    def guid(self) -> str:
        """Derived from the content, so every registry of this kind assigns the same one."""
        return str(uuid.UUID(bytes=self.fingerprint[:16]))

    def as_json(self) -> dict[str, Json]:
        """The fields that requests, responses and records share; `schemaType` is omitted for Avro."""
        members: dict[str, Json] = {}
        if self.type != AVRO:
            members["schemaType"] = self.type
        if self.references:
            members["references"] = [reference.as_json() for reference in self.references]
        if self.metadata:
            members["metadata"] = dict(self.metadata)
        if self.rules:
            members["ruleSet"] = dict(self.rules)
        members["schema"] = self.text
        return members


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a subject. guid: the one in its record, or the content's own if the record has none."""

    subject: Subject
    version: int
    id: int
    content: Content
    guid: str
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of a subject, a context or the whole registry. None: inherited from the wider scope."""

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
        """These settings, with unset ones taken from `wider`; an alias is not inherited."""
        merged = {}
        for part in fields(self):
            own = getattr(self, part.name)
            merged[part.name] = getattr(wider, part.name) if own is None and part.name != "alias" else own
        return Config(**merged)


DEFAULT_CONFIG: Final = Config(compatibility=Level.BACKWARD)
