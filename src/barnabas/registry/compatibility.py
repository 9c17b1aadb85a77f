"""Whether a new version is compatible with earlier ones at a level, and if not, the reasons in readable form. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.registry.library import Schema
from barnabas.registry.model import Config, Content, Level, Version
from barnabas.schemas.formats.base import Problem

Reading = Callable[[Version], Schema]


def reasons(
    new: Schema,
    content: Content,
    earlier: Sequence[Version],
    level: Level,
    read: Reading,
    *,
    all_of_them: bool = False,
) -> list[str]:
    """Why `new` is not compatible with earlier versions; empty if it is compatible.

    earlier: in order of version; the newest is compared first, and only the first incompatible one is reported.
    all_of_them: compare with every version even if the level is not transitive, as when the request names a version.
    """
    if level is Level.NONE or not earlier:
        return []
    count = len(earlier) if level.transitive or all_of_them else 1
    for version in list(reversed(earlier))[:count]:
        problems = _against(new, content, version, level, read)
        if problems:
            return problems
    return []


def _against(new: Schema, content: Content, version: Version, level: Level, read: Reading) -> list[str]:
    if version.content.type != content.type:
        return [
            f"{{errorType:'SCHEMA_TYPE_CHANGED', description:'the new schema is {content.type}, version "
            f"{version.version} is {version.content.type}; register it under another subject'}}",
            *_about(version, level),
        ]
    old = read(version)
    if old.canonical == new.canonical:
        return []
    problems: list[str] = []
    if level.backward:
        problems += [
            _shown(problem, "the new schema", "the old schema") for problem in new.problems_reading(old)
        ]
    if level.forward:
        problems += [
            _shown(problem, "the old schema", "the new schema") for problem in old.problems_reading(new)
        ]
    return [*problems, *_about(version, level)] if problems else []


def _shown(problem: Problem, reader: str, writer: str) -> str:
    message = problem.message.replace("{new}", reader).replace("{old}", writer)
    return (
        f"{{errorType:'{problem.kind}', description:'at {problem.path} of {reader}: {message}', "
        f"additionalInfo:'{problem.advice}'}}"
    )


def _about(version: Version, level: Level) -> list[str]:
    text = version.content.text
    return [
        f"{{oldSchemaVersion: {version.version}}}",
        f"{{oldSchema: '{text if len(text) <= 2000 else text[:2000] + '...'}'}}",
        f"{{compatibility: '{level.value}'}}",
    ]


def in_group(versions: Sequence[Version], content: Content, config: Config) -> list[Version]:
    """The versions with which the new one must be compatible: all, or those of its compatibility group."""
    name = config.compatibility_group
    if not name:
        return list(versions)
    own = _property(content, name)
    return [version for version in versions if _property(version.content, name) == own]


def _property(content: Content, name: str) -> str | None:
    value = ((content.metadata or {}).get("properties") or {}).get(name)
    return value if isinstance(value, str) else None
