"""Leaves secrets out of what is shown to others: options, command lines, property files, environment variables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

HIDDEN: Final = "[hidden]"
SECRET: Final = re.compile(
    r"password|passphrase|secret|token|credential|jaas|api[._-]?key|private|keystore\.key|ssl\.key\b|ssl_key\b|user\.?info",
    re.IGNORECASE,
)
"""Names of options whose values must stay secret. File names of keys are no secrets, but are hidden as well."""
IN_URL: Final = re.compile(r"(\w+://[^/\s:@]*:)[^@/\s]+@")


def is_secret(name: str) -> bool:
    """Whether the value of an option of this name must not be shown."""
    return SECRET.search(name) is not None


def without_secrets(options: Mapping[str, str | None]) -> dict[str, str | None]:
    """Options with the values of secret ones hidden."""
    return {
        name: HIDDEN
        if is_secret(name) and value is not None
        else None
        if value is None
        else hide_in_urls(value)
        for name, value in options.items()
    }


def hide_in_urls(text: str) -> str:
    """Text with the passwords in `scheme://user:password@host` hidden."""
    return IN_URL.sub(rf"\1{HIDDEN}@", text)


def line_without_secrets(line: str) -> str:
    """A line `name=value` (or `name: value`) with a secret value hidden; any other line as it is."""
    match = re.match(r"\s*([\w.\-]+)\s*[=:]\s*(?=\S)", line)
    if match is None or line.lstrip().startswith(("#", "!")):
        # A comment may be a disabled option with its password.
        commented = re.match(r"\s*[#!]+\s*([\w.\-]+)\s*[=:]\s*(?=\S)", line)
        match = commented
    if match is not None and is_secret(match[1]):
        return f"{line[: match.end()]}{HIDDEN}"
    return hide_in_urls(line)


def text_without_secrets(text: str) -> str:
    """A property file with its secrets hidden, also if a value continues in the next line (after a backslash)."""
    lines, hiding = [], False
    for line in text.splitlines():
        if hiding:
            hiding = line.endswith("\\")
            continue
        shown = line_without_secrets(line)
        hiding = shown != line and line.endswith("\\")
        lines.append(shown)
    return "\n".join(lines) + "\n"


def words_without_secrets(words: Iterable[str]) -> list[str]:
    """A command line with the values of `-o name=value` and `--name value` hidden where they are secret."""
    shown, hide_next = [], False
    for word in words:
        if hide_next:
            shown.append(HIDDEN)
            hide_next = False
            continue
        name, equals, _ = word.partition("=")
        hide_next = not equals and word.startswith("--") and is_secret(word)
        shown.append(f"{name}={HIDDEN}" if equals and is_secret(name) else hide_in_urls(word))
    return shown
