"""Java's login configuration (JAAS), as far as the documentation of Kafka and ZooKeeper uses it: in files, and in
`sasl.jaas.config`.

    Client {
        org.apache.zookeeper.server.auth.DigestLoginModule required
        username="kafka"
        password="secret";
    };

A section of a file has a name and login modules, each with a flag and options; `sasl.jaas.config` is one login module.
Kafka's scripts pass the file's name as a Java property in KAFKA_OPTS; so does Barnabas, so that a broker's environment need
not change. Errors do not quote the text: it contains passwords.
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
FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_TOKEN: Final = re.compile(
    r"""\s+ | //[^\n]* | \#[^\n]* | /\*.*?\*/ | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<mark>[{};=]) | (?P<word>[^\s{};="'][^\s{};="]*)""",
    re.VERBOSE | re.DOTALL,
)


class JaasError(ValueError):
    """The text is malformed; the message is one line with its line number."""


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


def read_file(path: str) -> dict[str, tuple[Login, ...]]:
    """The logins of each section of a file. Raises JaasError."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise JaasError(f"the login file {path} cannot be read: {why}") from None
    try:
        return parse(text)
    except JaasError as error:
        raise JaasError(f"{path}, {error}") from None


def read_section(path: str, section: str) -> tuple[Login, ...]:
    """The logins of one section; empty if the file has no such section. Raises JaasError."""
    return read_file(path).get(section, ())


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


def parse_login(text: str) -> Login:
    """The one login module of `sasl.jaas.config`. Raises JaasError."""
    tokens = _Tokens(text)
    login = _login(tokens)
    if tokens.take() is not None:
        raise JaasError("there is something after its first semicolon")
    return login


def _login(tokens: _Tokens) -> Login:
    module = tokens.word("a login module")
    flag = "required, requisite, sufficient or optional"
    if tokens.word(flag).lower() not in FLAGS:
        raise JaasError(f"line {tokens.line}: {flag} is missing")
    options: dict[str, str] = {}
    while not tokens.skip(";"):
        name = tokens.word("an option")
        tokens.expect("=")
        options[name] = tokens.word("the value of an option")
    return Login(module.rpartition(".")[2], options)


class _Tokens:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, int, bool]] = []  # text, position, is a mark
        self._next = 0
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise JaasError(f"line {self._line(at)}: a quotation mark has no end")
            if match["text"] is not None:
                self._tokens.append(
                    (re.sub(r"\\(.)", r"\1", match["text"][1:-1], flags=re.DOTALL), at, False)
                )
            elif match["mark"] or match["word"]:
                self._tokens.append((match[0], at, match["mark"] is not None))
            at = match.end()

    def take(self) -> str | None:
        """The next token; None at the end."""
        if self._next == len(self._tokens):
            return None
        self._next += 1
        return self._tokens[self._next - 1][0]

    def word(self, what: str) -> str:
        """The next token, which must not be a punctuation mark."""
        if self._next == len(self._tokens) or self._tokens[self._next][2]:
            raise JaasError(f"line {self.line}: {what} is missing")
        token = self.take()
        assert token is not None
        return token

    def skip(self, mark: str) -> bool:
        """Skip the next token if it is this mark; returns whether it was."""
        is_next = self._next < len(self._tokens) and self._tokens[self._next][::2] == (mark, True)
        self._next += is_next
        return is_next

    def expect(self, mark: str) -> None:
        """Skip the next token, which must be this mark."""
        if not self.skip(mark):
            raise JaasError(f"line {self.line}: {mark} is missing")

    @property
    def line(self) -> int:
        """The line of the next token, from 1."""
        at = self._tokens[self._next][1] if self._next < len(self._tokens) else len(self._text)
        return self._line(at)

    def _line(self, at: int) -> int:
        return self._text.count("\n", 0, at) + 1
