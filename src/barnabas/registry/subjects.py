"""Names of subjects and contexts. Pure.

A context is a separate set of subjects and ids. `:.staging:orders-value` is the subject orders-value in the context
`.staging`; a name not of that form belongs to the default context `.`. `:.staging:` alone names the context.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.registry.errors import Code, RegistryError

DEFAULT_CONTEXT: Final = "."
WILDCARD: Final = ":*:"
"""As a prefix: the subjects of all contexts."""
_RESERVED: Final = frozenset({"__GLOBAL", "__EMPTY"})
NAME_LENGTH_MAX: Final = 512


class Subject(NamedTuple):
    """context: begins with a dot. name: empty for the context itself."""

    context: str
    name: str

    def __str__(self) -> str:
        return self.name if self.context == DEFAULT_CONTEXT else f":{self.context}:{self.name}"

    @property
    def key(self) -> str | None:
        """The name in records; None for the default context itself, which stands for the whole registry."""
        return str(self) or None


GLOBAL: Final = Subject(DEFAULT_CONTEXT, "")


def parse_subject(text: str, context: str = DEFAULT_CONTEXT) -> Subject:
    """Parse a name, legal or not. context: the one to which an unqualified name belongs."""
    if text.startswith(":."):
        name, colon, rest = text[1:].partition(":")
        if colon:
            return Subject(name, rest)
    return Subject(context, text)


def context_name(text: str) -> str:
    """The name of a context: `.staging` for `staging`, `.staging` and `:.staging:`. Raises RegistryError."""
    name = text.strip(":")
    name = name if name.startswith(".") else f".{name}"
    if ":" in name or not _is_legal(name):
        raise RegistryError(
            Code.INVALID_SUBJECT, f"{text!r} is not the name of a context: use .NAME without colons"
        )
    return name


def require_subject(text: str, context: str = DEFAULT_CONTEXT) -> Subject:
    """Like `parse_subject`, but raises RegistryError for a name that no subject may have."""
    subject = parse_subject(text, context)
    if not subject.name or not _is_legal(subject.name) or not _is_legal(subject.context):
        raise RegistryError(Code.INVALID_SUBJECT, f"{text!r} is not a legal subject: {_rule(subject.name)}")
    if subject.name in _RESERVED:
        raise RegistryError(Code.INVALID_SUBJECT, f"{text!r} is reserved; choose another subject")
    return subject


def _is_legal(name: str) -> bool:
    return len(name) <= NAME_LENGTH_MAX and name.isprintable()


def _rule(name: str) -> str:
    if not name:
        return "it must not be empty"
    return f"at most {NAME_LENGTH_MAX} characters, none of them a control character"
