"""Java's login files (JAAS), as far as the documentation of Kafka and ZooKeeper uses them.

    Client {
        org.apache.zookeeper.server.auth.DigestLoginModule required
        username="kafka"
        password="secret";
    };

A section has a name and login modules, each with a flag and options. Kafka's scripts pass the file's name as a Java property
in KAFKA_OPTS; so does Barnabas, so that a broker's environment need not change.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

FILE_PROPERTY: Final = "java.security.auth.login.config"
VARIABLE: Final = "KAFKA_OPTS"
_TOKEN: Final = re.compile(
    r'\s+|//[^\n]*|/\*.*?\*/|#[^\n]*|(?P<text>"(?:[^"\\]|\\.)*")|(?P<mark>[{};=])|(?P<word>[^\s{};="]+)',
    re.DOTALL,
)


class JaasError(ValueError):
    """The file is malformed; the message is one line with its line number."""


class Login(NamedTuple):
    """One login module: its class without the package, and its options."""

    module: str
    options: Mapping[str, str]


def java_properties(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The Java properties (-Dname=value) in KAFKA_OPTS. Raises JaasError for an unclosed quote."""
    try:
        words = shlex.split(environment.get(VARIABLE, ""))
    except ValueError as error:
        raise JaasError(f"the environment variable {VARIABLE} cannot be read: {error}") from None
    pairs = (word[2:].partition("=") for word in words if word.startswith("-D"))
    return {name: value for name, _, value in pairs}


def read_section(path: str, section: str) -> tuple[Login, ...]:
    """The logins of one section; empty if the file has no such section. Raises JaasError."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise JaasError(f"the login file {path} cannot be read: {why}") from None
    try:
        return parse(text).get(section, ())
    except JaasError as error:
        raise JaasError(f"{path}, {error}") from None


def parse(text: str) -> dict[str, tuple[Login, ...]]:
    """All sections of a file. Raises JaasError."""
    tokens = _Tokens(text)
    sections: dict[str, tuple[Login, ...]] = {}
    while (name := tokens.take()) is not None:
        tokens.expect("{")
        logins: list[Login] = []
        while not tokens.skip("}"):
            logins.append(_login(tokens))
        tokens.skip(";")
        sections[name] = tuple(logins)
    return sections


def _login(tokens: _Tokens) -> Login:
    module, _flag = tokens.word("a login module"), tokens.word("required, requisite, sufficient or optional")
    options: dict[str, str] = {}
    while not tokens.skip(";"):
        name = tokens.word("an option")
        tokens.expect("=")
        options[name] = tokens.word(f"the value of {name}")
    return Login(module.rpartition(".")[2], options)


class _Tokens:
    def __init__(self, text: str) -> None:
        self._text = text
        self._found: list[tuple[str, int, bool]] = []  # text, position, is a mark
        self._next = 0
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise JaasError(f"line {self._line(at)}: a quotation mark has no end")
            if match["text"] is not None:
                self._found.append((re.sub(r"\\(.)", r"\1", match["text"][1:-1]), at, False))
            elif match["mark"] or match["word"]:
                self._found.append((match[0], at, match["mark"] is not None))
            at = match.end()

    def take(self) -> str | None:
        """The next token; None at the end."""
        if self._next == len(self._found):
            return None
        self._next += 1
        return self._found[self._next - 1][0]

    def word(self, what: str) -> str:
        """The next token, which must not be a punctuation mark."""
        if self._next == len(self._found) or self._found[self._next][2]:
            raise JaasError(f"line {self._here()}: {what} is missing")
        token = self.take()
        assert token is not None
        return token

    def skip(self, mark: str) -> bool:
        """Skip the next token if it is this mark; returns whether it was."""
        is_next = self._next < len(self._found) and self._found[self._next][::2] == (mark, True)
        self._next += is_next
        return is_next

    def expect(self, mark: str) -> None:
        """Skip the next token, which must be this mark."""
        if not self.skip(mark):
            raise JaasError(f"line {self._here()}: {mark} is missing")

    def _here(self) -> int:
        at = self._found[self._next][1] if self._next < len(self._found) else len(self._text)
        return self._line(at)

    def _line(self, at: int) -> int:
        return self._text.count("\n", 0, at) + 1
