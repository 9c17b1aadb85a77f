"""Fields that readers may not see: rules by topic, from a file. Applied to what is shown, and to what filters compare."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from barnabas.console.records.decoding import Headers, Shown, pretty
from barnabas.console.roles import Role

HIDDEN: Final = "•••"
_SECRET: Final = secrets.token_bytes(32)
"""Of this process: equal values have equal marks for as long as it runs, and nobody can compute the mark of a guess."""


def _hide(value: Any) -> str:
    return HIDDEN


def _last4(value: Any) -> str:
    text = str(value)
    return HIDDEN + text[-4:] if len(text) > 8 else HIDDEN


def _mark(value: Any) -> str:
    return "#" + hmac.new(_SECRET, str(value).encode("utf-8", "replace"), hashlib.sha256).hexdigest()[:12]


HOWS: Final[Mapping[str, Callable[[Any], str]]] = {"hide": _hide, "last4": _last4, "mark": _mark}
"""hide: all of it. last4: all but its end, if it is long enough. mark: a mark that equal values share."""
BELOW: Final = {"operate": Role.OPERATE, "admin": Role.ADMIN, "nobody": None}
"""From which role on a topic's fields are shown as they are."""


class MasksError(ValueError):
    """A file of masks cannot be read."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the file. path: key, value or headers, then the names of fields, `*` for any."""

    topic: str
    path: tuple[str, ...]
    how: str = "hide"
    shown_to: Role | None = None


class Masks:
    """The rules that apply to one reader of one topic."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules

    def __bool__(self) -> bool:
        return bool(self._rules)

    def touches(self, part: str) -> bool:
        """Whether anything of key, value or headers is masked."""
        return any(rule.path[0] == part for rule in self._rules)

    def how(self, part: str, how: str) -> str:
        """The format in which a key or value is decoded: in one that shows bytes as they are, fields could not be masked."""
        return "auto" if self.touches(part) and how in ("text", "hex", "base64") else how

    def shown(self, part: str, content: Shown) -> Shown:
        """A key or value without what is masked. If fields are masked, and it cannot be told where they are, nothing of it
        is shown."""
        rules = [rule for rule in self._rules if rule.path[0] == part]
        if not rules or content.kind == "null":
            return content
        document = content.document
        for rule in rules:
            if len(rule.path) == 1:
                text = HOWS[rule.how](content.text)
                return replace(content, kind="masked", text=text, document=None, error=None)
            if not isinstance(document, (dict, list)):
                return replace(content, kind="masked", text=HIDDEN, document=None, error=None)
            document = _masked(document, rule.path[1:], HOWS[rule.how])
        return replace(content, text=pretty(document), document=document)

    def headers(self, headers: Headers) -> Headers:
        """Headers without the values that are masked."""
        rules = [rule for rule in self._rules if rule.path[0] == "headers"]
        return [(name, self._header(rules, name, content)) for name, content in headers] if rules else headers

    def _header(self, rules: Sequence[Rule], name: str, content: bytes | None) -> bytes | None:
        for rule in rules:
            if content is not None and (
                len(rule.path) == 1 or fnmatchcase(name.lower(), rule.path[1].lower())
            ):
                return HOWS[rule.how](content.decode("utf-8", "replace")).encode()
        return content


NOTHING: Final = Masks(())


def _masked(value: Any, path: Sequence[str], mask: Callable[[Any], str]) -> Any:
    """The value with the fields at a path replaced; lists are gone through."""
    if isinstance(value, list):
        return [_masked(item, path, mask) for item in value]
    if not path:
        return None if value is None else mask(value)
    if not isinstance(value, dict):
        return value
    first, rest = path[0], path[1:]
    return {
        name: _masked(member, rest, mask) if first in ("*", name) else member
        for name, member in value.items()
    }


class Masking:
    """All rules."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self._rules = tuple(rules)

    def of(self, topic: str, role: Role) -> Masks:
        """The rules for a reader with this role on a topic."""
        fitting = [
            rule
            for rule in self._rules
            if fnmatchcase(topic, rule.topic) and (rule.shown_to is None or role < rule.shown_to)
        ]
        return Masks(fitting) if fitting else NOTHING


NO_MASKING: Final = Masking()


def read_masks(path: Path) -> Masking:
    """Rules of a file: lines `TOPIC FIELD [HOW [ROLE]]`. Raises MasksError."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise MasksError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    rules = []
    for number, line in enumerate(lines, 1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        if not 2 <= len(words) <= 4:
            raise MasksError(f"{path} line {number} is not TOPIC FIELD [HOW [ROLE]]")
        topic, field, how, shown_to = (*words, *("hide", "nobody")[len(words) - 2 :])
        parts = tuple(field.split("."))
        if parts[0] not in ("key", "value", "headers") or not all(parts):
            raise MasksError(f"{path} line {number}: {field} does not begin with key, value or headers")
        if how not in HOWS:
            raise MasksError(f"{path} line {number}: {how} is not one of {', '.join(HOWS)}")
        if shown_to not in BELOW:
            raise MasksError(f"{path} line {number}: {shown_to} is not one of {', '.join(BELOW)}")
        rules.append(Rule(topic, parts, how, BELOW[shown_to]))
    return Masking(rules)
