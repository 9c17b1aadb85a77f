"""JAAS configuration in the syntax that Kafka documents: in `sasl.jaas.config`, or in sections of a file.

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="admin" password="secret" user_alice="her secret";

A file has such entries in named sections: `KafkaServer { ... };`, or `sasl_ssl.KafkaServer` for one listener only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from barnabas.config.broker_security import SASL_JAAS_CONFIG
from barnabas.config.option import ConfigError

if TYPE_CHECKING:
    from barnabas.security.listener_options import ListenerOptions

FILE_PROPERTY: Final = "java.security.auth.login.config"
SECTION: Final = "KafkaServer"
USER_PREFIX: Final = "user_"
FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
TOKEN: Final = re.compile(
    r"""\s+ | //[^\n]* | \#[^\n]* | /\*.*?\*/ | (?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
    | (?P<sign>[{};=]) | (?P<word>[^\s{};="'#]+)""",
    re.VERBOSE | re.DOTALL,
)
Entry = Mapping[str, str]
"""A login module's options by name; the empty name has the module's class."""


def parse_entry(text: str) -> Entry:
    """The one entry of `sasl.jaas.config`. Raises ConfigError without quoting the text, which contains secrets."""
    words = _words(text)
    entries = _entries(words)
    if words or len(entries) != 1:
        raise ConfigError('a JAAS configuration must be one `MODULE required NAME="VALUE" ...;`')
    return entries[0]


def parse_file(text: str) -> dict[str, list[Entry]]:
    """The entries of each section of a JAAS file. Raises ConfigError."""
    words, found = _words(text), {}
    while words:
        name = words.pop(0)
        if not words or words.pop(0) != "{":
            raise ConfigError(f"section {name!r} of the JAAS file does not begin with {{")
        found[name] = _entries(words)
        if not words or words.pop(0) != "}":
            raise ConfigError(f"section {name!r} of the JAAS file does not end with }}")
        if words and words[0] == ";":
            words.pop(0)
    return found


def file_named() -> str | None:
    """The JAAS file of this process, named as for Kafka: KAFKA_OPTS=-Djava.security.auth.login.config=FILE."""
    return property_named(FILE_PROPERTY)


def property_named(property_name: str) -> str | None:
    """The value that KAFKA_OPTS=-DNAME=VALUE gives to a Java property; None if it is not set there."""
    for word in os.environ.get("KAFKA_OPTS", "").split():
        name, _, value = word.partition("=")
        if name == f"-D{property_name}" and value:
            return value
    return None


def section_entries(path: str, listener: str) -> list[Entry]:
    """The entries for a listener in a JAAS file, from its own section or KafkaServer's. Raises ConfigError."""
    try:
        with open(path, encoding="utf-8") as file:
            sections = parse_file(file.read())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the JAAS file {path}: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return sections.get(f"{listener.lower()}.{SECTION}") or sections.get(SECTION) or []


def entry_of(options: ListenerOptions, mechanism: str, module: str, file: str | None) -> Entry | None:
    """A listener's entry for a mechanism: from `sasl.jaas.config`, else from the JAAS file; None if neither has one.

    module: the end of the login module's class name; entries of other modules are ignored. Raises ConfigError.
    """
    text = options.get(SASL_JAAS_CONFIG, mechanism)
    if text is not None:
        try:
            entry = parse_entry(text)
        except ConfigError as error:
            raise ConfigError(f"{options.name_of(SASL_JAAS_CONFIG, mechanism)}: {error}") from None
        return entry if entry[""].endswith(module) else None
    if file is not None:
        for entry in section_entries(file, options.listener):
            if entry[""].endswith(module):
                return entry
    return None


def users_of(entry: Entry) -> dict[str, str]:
    """user -> password, from an entry's options user_NAME="password"."""
    return {name[len(USER_PREFIX) :]: value for name, value in entry.items() if name.startswith(USER_PREFIX)}


def _words(text: str) -> list[str]:
    found, at = [], 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise ConfigError("a JAAS configuration has a quote that is not closed")
        if match["string"]:
            found.append('"' + re.sub(r"\\(.)", r"\1", match["string"][1:-1], flags=re.DOTALL))
        elif match["sign"] or match["word"]:
            found.append(match[0])
        at = match.end()
    return found


def _entries(words: list[str]) -> list[Entry]:
    found: list[Entry] = []
    while words and words[0] != "}":
        options = {"": words.pop(0)}
        if not words or words.pop(0).lower() not in FLAGS:
            raise ConfigError(f"a login module must be followed by one of {', '.join(sorted(FLAGS))}")
        while words and words[0] != ";":
            name = words.pop(0).removeprefix('"')
            if len(words) < 2 or words.pop(0) != "=":
                raise ConfigError("a JAAS configuration needs NAME=VALUE and a semicolon at its end")
            options[name] = words.pop(0).removeprefix('"')
        if not words:
            raise ConfigError("a JAAS configuration must end with a semicolon")
        words.pop(0)
        found.append(options)
    return found
