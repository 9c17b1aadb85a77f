"""The registry's state, replayed from the records of `_schemas`. Pure.

Only `replay` applies records, in the order of the log: both those that this instance appended as the writer, and those
that it reads from the log. Queries change nothing.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from barnabas.registry import records
from barnabas.registry.model import DEFAULT_CONFIG, Config, Content, Mode, Version
from barnabas.registry.records import BadRecord, Entry, Key
from barnabas.registry.subjects import DEFAULT_CONTEXT, GLOBAL, Subject, parse_subject

Place = tuple[Subject, int]
"""A subject and a version of it."""


@dataclass(slots=True)
class Identified:
    """One id of a context. places: the versions that have it, including soft-deleted ones."""

    content: Content
    guid: str
    places: set[Place] = field(default_factory=set)


@dataclass(slots=True)
class Context:
    """The ids of a context. by_content: ids by fingerprint. id_max: the highest id ever assigned."""

    ids: dict[int, Identified] = field(default_factory=dict)
    by_content: dict[bytes, int] = field(default_factory=dict)
    id_max: int = 0


@dataclass(slots=True)
class Versions:
    """The versions of one subject, including soft-deleted ones. numbers: in order."""

    by_number: dict[int, Version] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)

    def live(self) -> list[Version]:
        """Versions that are not deleted, in order."""
        return [v for n in self.numbers if not (v := self.by_number[n]).deleted]

    def all(self) -> list[Version]:
        """All versions, in order."""
        return [self.by_number[n] for n in self.numbers]


class State:
    """raw_keys: bytes of keys that others encoded differently."""

    def __init__(self) -> None:
        self.subjects: dict[Subject, Versions] = {}
        self.contexts: dict[str, Context] = {DEFAULT_CONTEXT: Context()}
        self.named_contexts: set[str] = set()
        self.configs: dict[Subject, Config] = {}
        self.modes: dict[Subject, Mode] = {}
        self.guids: dict[str, set[tuple[str, int]]] = {}
        self.referrers: dict[Place, set[Place]] = {}
        self.raw_keys: dict[Key, bytes] = {}

    # --- replay -----------------------------------------------------------------------------------

    def replay(self, entry: Entry, raw_key: bytes | None = None) -> None:
        """Apply one record. Raises BadRecord, having changed nothing but `raw_keys`."""
        key, value = entry
        if raw_key is not None and raw_key != key.encode():
            self.raw_keys[key] = raw_key
        match key.kind:
            case "SCHEMA":
                self._replay_schema(key, None if value is None else records.read_version(value))
            case "CONFIG":
                scope = records.scope_of(key.subject)
                if value is None:
                    self.configs.pop(scope, None)
                else:
                    self.configs[scope] = records.read_config(value)
            case "MODE":
                self._replay_mode(records.scope_of(key.subject), value)
            case "DELETE_SUBJECT" | "CLEAR_SUBJECT":
                if value is not None:
                    self._replay_delete(key, records.read_deleted_version(value))
            case "CONTEXT":
                self._replay_context(key.subject or DEFAULT_CONTEXT, gone=value is None)
            case "NOOP":
                for name, id_max in records.read_ids_given(value).items():
                    context = self.contexts.setdefault(name, Context())
                    context.id_max = max(context.id_max, id_max)
            case _:
                raise BadRecord(f"keytype {key.kind!r} is unknown")

    def _replay_schema(self, key: Key, version: Version | None) -> None:
        subject = parse_subject(key.subject or "")
        if version is not None and (version.subject != subject or version.version != key.version):
            raise BadRecord(f"the value is of {version.subject} {version.version}, but the key is {key}")
        versions = self.subjects.get(subject)
        before = versions.by_number.get(key.version) if versions else None
        if before is not None:
            self._forget(before)
        if version is None:
            if versions is not None and before is not None:
                del versions.by_number[key.version]
                versions.numbers.remove(key.version)
                if not versions.numbers:
                    del self.subjects[subject]
            return
        if versions is None:
            versions = self.subjects[subject] = Versions()
        if key.version not in versions.by_number:
            insort(versions.numbers, key.version)
        versions.by_number[key.version] = version
        self._remember(version)

    def _remember(self, version: Version) -> None:
        name = version.subject.context
        context = self.contexts.setdefault(name, Context())
        known = context.ids.get(version.id)
        if known is None or known.content != version.content:
            # Another writer may assign new content to an id (import with force): the newest record wins.
            if known is not None and context.by_content.get(known.content.fingerprint) == version.id:
                del context.by_content[known.content.fingerprint]
            places = known.places if known is not None else set()
            known = context.ids[version.id] = Identified(version.content, version.guid, places)
        place = (version.subject, version.version)
        known.places.add(place)
        first = context.by_content.setdefault(version.content.fingerprint, version.id)
        if first not in context.ids:
            context.by_content[version.content.fingerprint] = version.id
        context.id_max = max(context.id_max, version.id)
        self.guids.setdefault(version.guid, set()).add((name, version.id))
        for target in self._targets(version):
            self.referrers.setdefault(target, set()).add(place)

    def _forget(self, version: Version) -> None:
        name = version.subject.context
        context = self.contexts[name]
        place = (version.subject, version.version)
        known = context.ids.get(version.id)
        if known is not None:
            known.places.discard(place)
            if not known.places:
                del context.ids[version.id]
                if context.by_content.get(version.content.fingerprint) == version.id:
                    del context.by_content[version.content.fingerprint]
                owners = self.guids.get(version.guid, set())
                owners.discard((name, version.id))
                if not owners:
                    self.guids.pop(version.guid, None)
        for target in self._targets(version):
            places = self.referrers.get(target, set())
            places.discard(place)
            if not places:
                self.referrers.pop(target, None)

    def _targets(self, version: Version) -> Iterator[Place]:
        for reference in version.content.references:
            yield parse_subject(reference.subject, version.subject.context), reference.version

    def _replay_mode(self, scope: Subject, value: object) -> None:
        if value is None:
            self.modes.pop(scope, None)
            return
        assert isinstance(value, dict)
        try:
            self.modes[scope] = Mode(str(value.get("mode")))
        except ValueError as error:
            raise BadRecord(str(error)) from error

    def _replay_delete(self, key: Key, up_to: int) -> None:
        subject = parse_subject(key.subject or "")
        versions = self.subjects.get(subject)
        if versions is None:
            return
        for number in versions.numbers:
            if key.kind == "CLEAR_SUBJECT" or number <= up_to:
                versions.by_number[number] = replace(versions.by_number[number], deleted=True)

    def _replay_context(self, name: str, *, gone: bool) -> None:
        if gone:
            self.named_contexts.discard(name)
        else:
            self.named_contexts.add(name)

    # --- queries ----------------------------------------------------------------------------------

    def versions(self, subject: Subject, *, deleted: bool = False) -> list[Version]:
        """The versions of a subject, in order. deleted: include soft-deleted ones."""
        versions = self.subjects.get(subject)
        if versions is None:
            return []
        return versions.all() if deleted else versions.live()

    def identified(self, context: str, schema_id: int) -> Identified | None:
        """An id's content and versions in a context; None if the id is unknown there."""
        ids_of_context = self.contexts.get(context)
        return None if ids_of_context is None else ids_of_context.ids.get(schema_id)

    def id_of(self, context: str, content: Content) -> int | None:
        """The id of a content in a context; None if it has none there."""
        ids_of_context = self.contexts.get(context)
        return None if ids_of_context is None else ids_of_context.by_content.get(content.fingerprint)

    def next_id(self, context: str) -> int:
        """An id that was never assigned in this context."""
        ids_of_context = self.contexts.get(context)
        return 1 if ids_of_context is None else ids_of_context.id_max + 1

    def ids_given(self) -> dict[str, int]:
        """The highest id ever assigned in each context."""
        return {name: context.id_max for name, context in self.contexts.items() if context.id_max}

    def config(self, subject: Subject) -> Config:
        """The settings in force for a subject: its own, else its context's, else the global ones, else the defaults."""
        everywhere = self.configs.get(GLOBAL)
        merged = DEFAULT_CONFIG if everywhere is None else everywhere.over(DEFAULT_CONFIG)
        for scope in _narrower(subject):
            if scope in self.configs:
                merged = self.configs[scope].over(merged)
        return merged

    def mode(self, subject: Subject) -> Mode:
        """The mode in force for a subject."""
        everywhere = self.modes.get(GLOBAL, Mode.READWRITE)
        if everywhere is Mode.READONLY_OVERRIDE:
            return everywhere
        for scope in reversed(_narrower(subject)):
            if scope in self.modes:
                return self.modes[scope]
        return everywhere

    def context_names(self) -> list[str]:
        """Contexts that have subjects or were created by a record, in order; the default one is always there."""
        names = {subject.context for subject in self.subjects} | self.named_contexts
        return sorted(names | {DEFAULT_CONTEXT})

    def resolve_alias(self, subject: Subject) -> Subject:
        """The subject that an alias refers to, or `subject` itself.

        An alias of an alias is not followed, as in Confluent's registry.
        """
        config = self.configs.get(subject)
        if config is None or not config.alias:
            return subject
        return parse_subject(config.alias, subject.context)


def _narrower(subject: Subject) -> list[Subject]:
    """The scopes of a subject that are narrower than the global one, widest first."""
    scopes = [Subject(subject.context, ""), subject]
    return [scope for scope in dict.fromkeys(scopes) if scope != GLOBAL]
