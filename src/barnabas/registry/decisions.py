"""Decides what a change of the registry results in: records to append and a response, or an error. Pure.

Each function reads the state and changes nothing; the records take effect when they are replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from barnabas.registry import records
from barnabas.registry.compatibility import in_group, reasons
from barnabas.registry.contracts import check_fields, check_rules, reserved_problems
from barnabas.registry.errors import Code, RegistryError, client_message
from barnabas.registry.library import Library, Schema
from barnabas.registry.merging import with_inherited
from barnabas.registry.model import Config, Content, Level, Mode, Version
from barnabas.registry.queries import find_version, has_live_versions, same_as
from barnabas.registry.records import INT_MAX, Entry
from barnabas.registry.requests import LATEST, Wanted
from barnabas.registry.state import State
from barnabas.registry.subjects import DEFAULT_CONTEXT, GLOBAL, Subject
from barnabas.registry.tagging import with_tags
from barnabas.schemas.errors import InvalidSchema
from barnabas.schemas.model import Reference

REMEMBERED_CHARACTERS_MAX: Final = 16 << 10
REMEMBERED_MAX: Final = 1_000


class Decision(NamedTuple):
    """entries: records to append, all or none of them; empty if nothing changes. reply: the response as JSON."""

    entries: tuple[Entry, ...]
    reply: Any


def registered(version: Version) -> dict[str, Any]:
    """The response to a registration."""
    return {"id": version.id, "version": version.version, "guid": version.guid}


# --- schemas --------------------------------------------------------------------------------------


def prepare(
    state: State, library: Library, subject: Subject, wanted: Wanted, *, normalize: bool
) -> tuple[Content, Schema]:
    """The content that would be stored, and the parsed schema. Raises RegistryError, which may be InvalidSchema."""
    config = state.config(subject)
    content = wanted.content
    references = library.resolve_latest(content.references, subject.context)
    # Creating a Content computes a hash, so one is created only if something differs.
    alone = content
    if references != content.references or content.metadata is not None or content.rules is not None:
        alone = replace(content, references=references, metadata=None, rules=None)
    parsed = library.read(alone, subject.context, new=True)
    text = parsed.normalized() if normalize or config.normalize else parsed.canonical
    if text == content.text and references == content.references:
        return content, parsed
    if content.metadata is None and content.rules is None and len(text) <= REMEMBERED_CHARACTERS_MAX:
        return _plain_content(content.type, text, references), parsed
    return Content(content.type, text, references, content.metadata, content.rules), parsed


@lru_cache(REMEMBERED_MAX)
def _plain_content(kind: str, text: str, references: tuple[Reference, ...]) -> Content:
    return Content(kind, text, references)


def existing(
    state: State, library: Library, subject: Subject, wanted: Wanted, *, normalize: bool
) -> Version | None:
    """The version that a registration would return without a change; None if it has to be decided.

    Needs no writer: every instance may use it for its response. Raises RegistryError.
    """
    if wanted.id or wanted.version or wanted.tags_to_add or wanted.tags_to_remove:
        return None
    live = state.versions(subject)
    if not live:
        return None
    content, _ = prepare(state, library, subject, wanted, normalize=normalize)
    content = with_inherited(content, live[-1].content, state.config(subject))
    return next((version for version in reversed(live) if version.content == content), None)


def decide_register(
    state: State,
    library: Library,
    subject: Subject,
    wanted: Wanted,
    *,
    normalize: bool = False,
    force: bool = False,
) -> Decision:
    """Register a schema as a new version, unless the subject has it already. Raises RegistryError."""
    importing = _check_register_mode(state, subject, wanted)
    config = state.config(subject)
    live = state.versions(subject)
    if wanted.tags_to_add or wanted.tags_to_remove:
        wanted = replace(wanted, content=with_tags(wanted, library, subject))
    content, parsed = prepare(state, library, subject, wanted, normalize=normalize)
    content = with_inherited(content, live[-1].content if live else None, config)
    # A change of tags applies to the newest version, even if an earlier version already has these tags.
    looked_at = live[-1:] if wanted.tags_to_add or wanted.tags_to_remove else live
    same = next((v for v in reversed(looked_at) if v.content == content), None)
    if same is not None and wanted.id in (0, same.id) and wanted.version in (0, same.version):
        return Decision((), registered(same))
    if not importing:
        check_rules(content, config)
        check_fields(parsed, config)
    if not importing and not force:
        level = config.compatibility or Level.BACKWARD

        def read(version: Version) -> Schema:
            return library.read(version.content, version.subject.context)

        problems = reasons(parsed, content, in_group(live, content, config), level, read)
        problems += reserved_problems(parsed, content, live[-1].content if live else None, config)
        if problems:
            raise RegistryError(
                Code.INCOMPATIBLE,
                "Schema being registered is incompatible with an earlier schema for subject "
                f'"{subject}", details: [{", ".join(problems)}]',
            )
    version = _new_version(state, subject, wanted, content)
    entries = [records.schema_entry(version)]
    if subject.context != DEFAULT_CONTEXT and subject.context not in state.named_contexts:
        entries.append(records.context_entry(subject.context))
    return Decision(tuple(entries), registered(version))


def _check_register_mode(state: State, subject: Subject, wanted: Wanted) -> bool:
    """Whether the subject is being imported. Raises RegistryError."""
    mode = state.mode(subject)
    _require_writable(state, subject)
    if mode is Mode.IMPORT:
        if not wanted.id:
            raise RegistryError(
                Code.NOT_PERMITTED, f"Subject {subject} is in import mode: the request needs an `id`"
            )
        return True
    if wanted.id:
        raise RegistryError(
            Code.NOT_PERMITTED,
            f"Subject {subject} is not in import mode: to choose an `id`, first send PUT /mode/{subject} "
            '{"mode": "IMPORT"}',
        )
    return False


def _require_writable(state: State, subject: Subject) -> None:
    mode = state.mode(subject)
    if mode in (Mode.READONLY, Mode.READONLY_OVERRIDE, Mode.FORWARD):
        raise RegistryError(
            Code.NOT_PERMITTED, f"Subject {subject} in context {subject.context} is in {_shown(mode)} mode"
        )


def _shown(mode: Mode) -> str:
    return "read-only" if mode is not Mode.FORWARD else "forward"


def _new_version(state: State, subject: Subject, wanted: Wanted, content: Content) -> Version:
    context = subject.context
    schema_id = wanted.id or state.id_of(context, content) or state.next_id(context)
    if schema_id > INT_MAX:
        raise RegistryError(Code.STORE_FAILED, f"Context {context} has used all ids up to {INT_MAX}")
    identified = state.identified(context, schema_id)
    if identified is not None and identified.content != content:
        raise RegistryError(
            Code.ID_MISMATCH,
            f"Overwrite new schema with id {schema_id} is not permitted: the id belongs to another schema",
        )
    versions = state.versions(subject, deleted=True)
    number = wanted.version or (versions[-1].version + 1 if versions else 1)
    there = next((v for v in versions if v.version == number), None)
    if there is not None and (there.content != content or not there.deleted):
        raise RegistryError(
            Code.ID_MISMATCH, f"Version {number} of subject {subject} already exists with id {there.id}"
        )
    return Version(subject, number, schema_id, content, identified.guid if identified else content.guid)


def decide_check(
    state: State,
    library: Library,
    subject: Subject,
    wanted: Wanted,
    number: int | None,
    *,
    normalize: bool = False,
    verbose: bool = False,
) -> dict[str, Any]:
    """Check compatibility with version `number`; None: with those that the level demands. Raises RegistryError."""
    config = state.config(subject)
    level = config.compatibility or Level.BACKWARD
    if number is None:
        earlier: Sequence[Version] = state.versions(subject)
    elif number == LATEST:
        earlier = state.versions(subject)[
            -1:
        ]  # as in Confluent's registry, nothing is compatible with everything
    elif not has_live_versions(state, subject):
        raise RegistryError(Code.VERSION_NOT_FOUND, f"Version {number} not found.")
    else:
        earlier = [find_version(state, subject, number)]
    try:
        content, parsed = prepare(state, library, subject, wanted, normalize=normalize)
    except InvalidSchema as error:
        if not verbose:
            raise
        return {"is_compatible": False, "messages": [client_message(error)]}
    if number is None:
        earlier = in_group(earlier, content, config)

    def read(version: Version) -> Schema:
        return library.read(version.content, version.subject.context)

    problems = reasons(parsed, content, earlier, level, read, all_of_them=number is not None)
    answer: dict[str, Any] = {"is_compatible": not problems}
    if verbose:
        answer["messages"] = problems
    return answer


# --- deletion -------------------------------------------------------------------------------------


def decide_delete_subject(state: State, subject: Subject, *, permanent: bool) -> Decision:
    """Delete all versions of a subject; permanently only after a soft deletion. Raises RegistryError."""
    _require_writable(state, subject)
    everything = state.versions(subject, deleted=True)
    if not everything:
        raise RegistryError(Code.SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")
    live = [version for version in everything if not version.deleted]
    if permanent and live:
        raise RegistryError(
            Code.SUBJECT_NOT_SOFT_DELETED,
            f"Subject '{subject}' was not deleted first before being permanently deleted",
        )
    if not permanent and not live:
        raise RegistryError(
            Code.SUBJECT_SOFT_DELETED,
            f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently",
        )
    gone = everything if permanent else live
    for version in gone:
        _require_unreferenced(state, version, permanent=permanent)
    if permanent:
        entries = [records.noop_entry(state.ids_given())]
        entries += [records.tombstone(subject, version.version) for version in gone]
    else:
        entries = [records.delete_subject_entry(subject, gone[-1].version)]
    entries += _without_settings(state, subject)
    return Decision(tuple(entries), [version.version for version in gone])


def decide_delete_version(state: State, subject: Subject, number: int, *, permanent: bool) -> Decision:
    """Delete one version; permanently only after a soft deletion. Raises RegistryError."""
    _require_writable(state, subject)
    version = find_version(state, subject, number, deleted=True)
    if permanent and not version.deleted:
        raise RegistryError(
            Code.VERSION_NOT_SOFT_DELETED,
            f"Subject '{subject}' Version {version.version} was not deleted first before being permanently deleted",
        )
    if not permanent and version.deleted:
        raise RegistryError(
            Code.VERSION_SOFT_DELETED,
            f"Subject '{subject}' Version {version.version} was soft deleted. Set permanent=true to delete permanently",
        )
    _require_unreferenced(state, version, permanent=permanent)
    if permanent:
        entries = [records.noop_entry(state.ids_given()), records.tombstone(subject, version.version)]
    else:
        entries = [records.schema_entry(replace(version, deleted=True))]
        if len(state.versions(subject)) == 1:
            entries += _without_settings(state, subject)
    return Decision(tuple(entries), version.version)


def _require_unreferenced(state: State, version: Version, *, permanent: bool) -> None:
    for subject, number in sorted(state.referrers.get((version.subject, version.version), ())):
        referrer = state.subjects[subject].by_number[number]
        if permanent or not referrer.deleted:
            raise RegistryError(
                Code.REFERENCE_EXISTS,
                f"One or more references exist to the schema {{subject={version.subject},version={version.version}}}: "
                f"version {number} of subject {subject} refers to it; delete that first",
            )


def _without_settings(state: State, subject: Subject) -> list[Entry]:
    entries = []
    if subject in state.modes:
        entries.append(records.mode_entry(subject, None))
    if subject in state.configs:
        entries.append(records.config_entry(subject, None))
    return entries


# --- settings -------------------------------------------------------------------------------------


def decide_config(state: State, scope: Subject, config: Config, body: dict[str, Any]) -> Decision:
    """Change settings of a scope; those that the request does not name stay as they are. Raises RegistryError."""
    _require_writable(state, scope)
    merged = config.over(state.configs.get(scope, Config()))
    merged = replace(merged, alias=config.alias or getattr(state.configs.get(scope), "alias", None))
    return Decision((records.config_entry(scope, merged),), body)


def decide_delete_config(state: State, scope: Subject) -> Decision:
    """Delete the settings of a scope, which then inherits those of the wider one. Raises RegistryError."""
    _require_writable(state, scope)
    config = state.configs.get(scope)
    if config is None:
        if scope != GLOBAL:
            raise RegistryError(
                Code.SUBJECT_NOT_FOUND, f"Subject '{scope}' not found: it has no settings of its own"
            )
        config = Config(compatibility=Level.BACKWARD)
    return Decision((records.config_entry(scope, None),), records.config_json(config))


def decide_mode(state: State, scope: Subject, mode: Mode, *, force: bool) -> Decision:
    """Set the mode of a scope; IMPORT needs `force` if it contains live subjects. Raises RegistryError."""
    if mode is Mode.IMPORT and not force and state.mode(scope) is not Mode.IMPORT:
        there = [
            subject
            for subject in state.subjects
            if has_live_versions(state, subject) and _covers(scope, subject)
        ]
        if there:
            raise RegistryError(
                Code.NOT_PERMITTED,
                f"Cannot import since found existing subjects: {there[0]}; use `force=true` to import nevertheless",
            )
    return Decision((records.mode_entry(scope, mode),), {"mode": mode.value})


def _covers(scope: Subject, subject: Subject) -> bool:
    if scope.name:
        return scope == subject
    return scope.context == subject.context


def decide_delete_mode(state: State, scope: Subject, *, recursive: bool = False) -> Decision:
    """Delete the mode of a scope, which then inherits the wider one's. recursive: also the modes of its subjects.

    Raises RegistryError.
    """
    mode = state.modes.get(scope)
    if mode is None and not recursive:
        if scope != GLOBAL:
            raise RegistryError(
                Code.SUBJECT_NOT_FOUND, f"Subject '{scope}' not found: it has no mode of its own"
            )
        mode = Mode.READWRITE
    inside = [
        s for s in state.modes if s != scope and recursive and not scope.name and s.context == scope.context
    ]
    entries = tuple(records.mode_entry(s, None) for s in (scope, *inside))
    return Decision(entries, {"mode": (mode or Mode.READWRITE).value})


def decide_delete_context(state: State, name: str) -> Decision:
    """Delete a context, which must not have subjects. Raises RegistryError."""
    if name == DEFAULT_CONTEXT or name not in state.context_names():
        raise RegistryError(Code.SUBJECT_NOT_FOUND, f"Context '{name}' not found")
    if any(subject.context == name for subject in state.subjects):
        raise RegistryError(
            Code.CONTEXT_NOT_EMPTY, f"Context '{name}' is not empty: delete its subjects permanently first"
        )
    entries = [records.context_entry(name, gone=True)]
    entries += _without_settings(state, Subject(name, ""))
    return Decision(tuple(entries), None)


__all__ = ["Decision", "decide_check", "decide_register", "existing", "same_as"]
