"""Look-ups that several requests share; they raise an error for what the state does not contain. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.model import Content, Version
from barnabas.registry.requests import LATEST
from barnabas.registry.state import Identified, State
from barnabas.registry.subjects import DEFAULT_CONTEXT, Subject, parse_subject


def has_live_versions(state: State, subject: Subject) -> bool:
    """Whether a subject has a version that is not deleted."""
    versions = state.subjects.get(subject)
    return versions is not None and any(not version.deleted for version in versions.by_number.values())


def require_versions(state: State, subject: Subject, *, deleted: bool = False) -> list[Version]:
    """The versions of a subject, in order. deleted: include soft-deleted ones. Raises RegistryError 40401 if none."""
    versions = state.versions(subject, deleted=deleted)
    if not versions:
        raise RegistryError(Code.SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")
    return versions


def find_version(state: State, subject: Subject, number: int, *, deleted: bool = False) -> Version:
    """One version, or for LATEST the newest. Raises RegistryError 40401 or 40402."""
    versions = require_versions(state, subject, deleted=deleted)
    if number == LATEST:
        live = [version for version in versions if not version.deleted]
        return (live or versions)[-1]
    for version in versions:
        if version.version == number:
            return version
    raise RegistryError(Code.VERSION_NOT_FOUND, f"Version {number} not found.")


def find_id(state: State, schema_id: int, scope: str | None) -> tuple[str, Identified]:
    """The context in which an id is found, and its content. scope: a subject or `:.context:` that says where to look.

    If an unqualified subject does not have the id in the default context, the other contexts are searched for a subject
    of this name that has it, as in Confluent's registry. Raises RegistryError 40403.
    """
    subject = parse_subject(scope or "")
    identified = state.identified(subject.context, schema_id)
    if identified is not None and (
        not subject.name or subject.context != DEFAULT_CONTEXT or _has(identified, subject)
    ):
        return subject.context, identified
    if subject.name and subject.context == DEFAULT_CONTEXT:
        for name, context in state.contexts.items():
            other = context.ids.get(schema_id)
            if other is not None and _has(other, Subject(name, subject.name)):
                return name, other
    if identified is not None:
        return subject.context, identified
    raise RegistryError(Code.SCHEMA_NOT_FOUND, f"Schema {schema_id} not found")


def _has(identified: Identified, subject: Subject) -> bool:
    return any(place[0] == subject for place in identified.places)


def same_as(versions: Sequence[Version], content: Content) -> Version | None:
    """The newest of these versions with this schema. Metadata and rules are compared only if `content` has them."""
    for version in reversed(versions):
        known = version.content
        if (
            known.type == content.type
            and known.text == content.text
            and known.references == content.references
            and (content.metadata is None or content.metadata == known.metadata)
            and (content.rules is None or content.rules == known.rules)
        ):
            return version
    return None
