"""Names of subjects and of the contexts they live in. Pure.

A context is a separate set of subjects and ids. `:.staging:orders-value` is the subject orders-value of the context
`.staging`; a name without that form belongs to the default context `.`. `:.staging:` alone names the context.
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
    """context: begins with a dot. name: empty where the context itself is meant."""

    context: str
    name: str

    def __str__(self) -> str:
        return self.name if self.context == DEFAULT_CONTEXT else f":{self.context}:{self.name}"

    @property
    def key(self) -> str | None:
        """The subject as records name it; None for the default context itself, which is global."""
        return str(self) or None


GLOBAL: Final = Subject(DEFAULT_CONTEXT, "")


def parse_subject(text: str, context: str = DEFAULT_CONTEXT) -> Subject:
    """context: where an unqualified name belongs."""
    if text.startswith(":."):
        name, colon, rest = text[1:].partition(":")
        if colon:
            return Subject(name, rest)
    return Subject(context, text)


def context_name(text: str) -> str:
    """A context as its API names it: `staging`, `.staging` and `:.staging:` are the same. Raises RegistryError."""
    name = text.strip(":")
    name = name if name.startswith(".") else f".{name}"
    if ":" in name or not _is_legal(name):
        raise RegistryError(
            Code.INVALID_SUBJECT, f"{text!r} is not the name of a context: use .NAME without colons"
        )
    return name


def require_subject(text: str, context: str = DEFAULT_CONTEXT) -> Subject:
    """The subject of this name. Raises RegistryError for a name that no subject may have."""
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
