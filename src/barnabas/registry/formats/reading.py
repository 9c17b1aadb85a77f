"""Parses schemas of any language, with the schemas that they refer to. Pure, except for a cache of parsed schemas."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from barnabas.registry.errors import Code, InvalidSchema, RegistryError
from barnabas.registry.formats.base import Dependency, Parsed
from barnabas.registry.model import AVRO, JSON, PROTOBUF, TYPES, Content, Reference
from barnabas.registry.state import State
from barnabas.registry.subjects import parse_subject

CACHED_BYTES_MAX: Final = 64 << 20
CACHED_MAX: Final = 4_000
REFERENCES_MAX: Final = 1_000


def read_schema(kind: str, text: str, dependencies: Sequence[Dependency], *, new: bool) -> Parsed:
    """Parse a schema. kind: its language. new: check it more strictly. Raises InvalidSchema, which names the place."""
    if kind == AVRO:
        from barnabas.registry.formats.avro import read_avro

        return read_avro(text, dependencies, new=new)
    if kind == JSON:
        from barnabas.registry.formats.json_schema import read_json_schema

        return read_json_schema(text, dependencies, new=new)
    if kind == PROTOBUF:
        from barnabas.registry.formats.protobuf import read_protobuf

        return read_protobuf(text, dependencies)
    raise InvalidSchema(f"schemaType {kind!r} is not one of {', '.join(TYPES)}")


class Library:
    """A cache of parsed schemas, by content and dependencies. May be used by several threads."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._read: OrderedDict[tuple[bytes, bool, tuple[str, ...]], tuple[Parsed, int]] = OrderedDict()
        self._bytes = 0

    def read(self, content: Content, context: str, *, new: bool = False) -> Parsed:
        """Parse a schema. context: of its references. new: it is about to be stored. Raises InvalidSchema."""
        return self.read_with(content, self.dependencies(content.references, context), new=new)

    def read_with(self, content: Content, dependencies: Sequence[Dependency], *, new: bool = False) -> Parsed:
        """Like `read`, with dependencies that have been looked up already. Raises InvalidSchema."""
        key = (content.fingerprint, new, tuple(d.text for d in dependencies))
        found = self._read.get(key)
        if found is not None:
            return found[0]
        parsed = read_schema(content.type, content.text, dependencies, new=new)
        size = len(content.text) + sum(len(d.text) for d in dependencies)
        self._read[key] = (parsed, size)
        self._bytes += size
        while len(self._read) > CACHED_MAX or (self._bytes > CACHED_BYTES_MAX and len(self._read) > 1):
            try:
                _, (_, gone) = self._read.popitem(last=False)
            except KeyError:  # another thread was quicker
                break
            self._bytes -= gone
        return parsed

    def dependencies(self, references: Sequence[Reference], context: str) -> list[Dependency]:
        """All schemas that these refer to, also indirectly, innermost first. Raises InvalidSchema if one is missing."""
        found: dict[tuple[str, str, int], Dependency] = {}
        self._collect(references, context, found, ())
        return list(found.values())

    def _collect(
        self,
        references: Sequence[Reference],
        context: str,
        found: dict[tuple[str, str, int], Dependency],
        above: tuple[tuple[str, int], ...],
    ) -> None:
        for reference in references:
            subject = parse_subject(reference.subject, context)
            place = (str(subject), reference.version)
            if place in above:
                way = " -> ".join(f"{name} {version}" for name, version in (*above, place))
                raise InvalidSchema(f"references form a cycle: {way}")
            key = (reference.name, *place)
            if key in found:
                continue
            held = self.state.subjects.get(subject)
            version = None if held is None else held.by_number.get(reference.version)
            if version is None:
                raise InvalidSchema(
                    f"reference {reference.name!r}: version {reference.version} of subject {str(subject)!r} does not "
                    "exist; register it first"
                )
            if len(found) >= REFERENCES_MAX or len(above) > 100:
                raise InvalidSchema(
                    f"more than {REFERENCES_MAX} references; put several types into one schema"
                )
            self._collect(version.content.references, subject.context, found, (*above, place))
            found[key] = Dependency(reference.name, reference, version.content.text)

    def resolve_latest(self, references: Sequence[Reference], context: str) -> tuple[Reference, ...]:
        """References in which version -1, the latest, is replaced by its number. Raises RegistryError."""
        made = []
        for reference in references:
            if reference.version == -1:
                live = self.state.versions(parse_subject(reference.subject, context))
                if not live:
                    raise RegistryError(
                        Code.INVALID_SCHEMA,
                        f"reference {reference.name!r}: subject {reference.subject!r} has no version; register one",
                    )
                reference = reference._replace(version=live[-1].version)
            made.append(reference)
        return tuple(made)
