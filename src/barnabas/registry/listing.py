"""Lists of subjects and versions, and versions as JSON, for the API. Pure."""

from __future__ import annotations

from typing import Any, Final

from barnabas.registry.model import Content, Version
from barnabas.registry.requests import RULE_LISTS
from barnabas.registry.state import State
from barnabas.registry.subjects import DEFAULT_CONTEXT, WILDCARD, Subject

ALL_TAGS: Final = "*"


def version_json(version: Version) -> dict[str, Any]:
    """A version with its schema."""
    row: dict[str, Any] = {
        "subject": str(version.subject),
        "version": version.version,
        "id": version.id,
        "guid": version.guid,
        **version.content.as_json(),
    }
    if version.deleted:
        row["deleted"] = True
    return row


def matching(state: State, prefix: str) -> list[Subject]:
    """Subjects whose names begin with `prefix`, in order. A prefix after `:*:` applies to every context."""
    if prefix.startswith(WILDCARD):
        rest = prefix[len(WILDCARD) :]
        subjects = [subject for subject in state.subjects if subject.name.startswith(rest)]
    elif prefix.startswith(":."):
        subjects = [s for s in state.subjects if s.context != DEFAULT_CONTEXT and str(s).startswith(prefix)]
    else:
        subjects = [s for s in state.subjects if s.context == DEFAULT_CONTEXT and s.name.startswith(prefix)]
    return sorted(subjects, key=str)


def subject_names(state: State, prefix: str, *, deleted: bool, deleted_only: bool) -> list[str]:
    """Names of subjects with live versions. deleted: also those without any; deleted_only: only those."""
    names = []
    for subject in matching(state, prefix):
        live = any(not version.deleted for version in state.subjects[subject].by_number.values())
        if not live if deleted_only else live or deleted:
            names.append(str(subject))
    return names


def all_versions(
    state: State, prefix: str, *, deleted: bool, latest_only: bool, rule_type: str
) -> list[Version]:
    """Versions of the subjects with this prefix, in order. rule_type: if not empty, only those with such a rule."""
    versions_listed = []
    for subject in matching(state, prefix):
        versions = state.versions(subject, deleted=deleted)
        versions_listed += versions[-1:] if latest_only else versions
    if rule_type:
        versions_listed = [version for version in versions_listed if _has_rule(version.content, rule_type)]
    return versions_listed


def _has_rule(content: Content, rule_type: str) -> bool:
    rules = content.rules or {}
    return any(rule.get("type") == rule_type for part in RULE_LISTS for rule in rules.get(part) or ())


def tags_of(content: Content, wanted: list[str]) -> list[dict[str, Any]]:
    """The wanted tags in a content's metadata, by path; `*` selects all."""
    rows = []
    for path, tags in ((content.metadata or {}).get("tags") or {}).items():
        names = [tag for tag in tags if ALL_TAGS in wanted or tag in wanted]
        if names:
            rows.append({"schemaEntity": {"entityPath": path}, "tags": names})
    return rows
