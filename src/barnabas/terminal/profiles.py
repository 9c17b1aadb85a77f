"""Profiles: clusters by name, in a file, so that addresses and credentials need not be typed.

    # ~/.config/barnabas/profiles.toml
    default = "laptop"

    [laptop]
    bootstrap = "localhost:9092"

    [production]
    bootstrap = "kafka1:9093,kafka2:9093"
    properties = { "security.protocol" = "SASL_SSL", "sasl.username" = "me" }

Which one: `barnabas --profile NAME ...`, else BARNABAS_PROFILE, else the file's `default`. Options (-b, -X) and
BARNABAS_BOOTSTRAP take precedence over the profile.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from barnabas.terminal.errors import UsageError

VARIABLE: Final = "BARNABAS_PROFILE"


@dataclass(frozen=True, slots=True)
class Profile:
    """One cluster. properties: librdkafka's names."""

    name: str
    bootstrap: str | None = None
    properties: dict[str, str] = field(default_factory=dict)


def path() -> Path:
    """The path of the file."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "barnabas" / "profiles.toml"


def read() -> tuple[str | None, dict[str, Profile]]:
    """The default's name and all profiles; nothing when there is no file. Raises UsageError."""
    import tomllib

    file = path()
    try:
        document = tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return None, {}
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {file}: {error}") from None
    default = document.pop("default", None)
    if default is not None and not isinstance(default, str):
        raise UsageError(f"{file}: default is not a profile's name")
    return default, {name: parse(file, name, table) for name, table in document.items()}


def parse(file: Path, name: str, table: Any) -> Profile:
    """One table of the file. Raises UsageError."""
    if not isinstance(table, dict):
        raise UsageError(f"{file}: the key {name!r} belongs to no profile; write [NAME] above it")
    unknown = sorted(set(table) - {"bootstrap", "properties"})
    if unknown:
        raise UsageError(
            f"{file}: profile {name} has the key {unknown[0]!r}, but may hold bootstrap and properties only"
        )
    properties = table.get("properties", {})
    if not isinstance(properties, dict) or not isinstance(table.get("bootstrap", ""), str):
        raise UsageError(
            f'{file}: profile {name}: bootstrap is a text, properties a table {{ "name" = "value" }}'
        )
    texts = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in properties.items()
    }
    return Profile(name, table.get("bootstrap"), texts)


def chosen() -> Profile | None:
    """The profile to use; None without one. Raises UsageError for an unknown name."""
    wanted = os.environ.get(VARIABLE)
    if not wanted and not path().exists():
        return None
    default, profiles = read()
    name = wanted or default
    if name is None:
        return None
    if name not in profiles:
        there = ", ".join(sorted(profiles)) or "none"
        raise UsageError(f"no profile {name!r} in {path()}; there are: {there}")
    return profiles[name]
