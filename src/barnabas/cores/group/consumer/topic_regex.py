"""Topic subscriptions by regular expression, in the syntax and with the engine family of Kafka's brokers.

Kafka matches with RE2J. RE2 has the same syntax (no look-around, no back-references), never backtracks, and takes time
linear in the length of a name. What remains to be limited is the size of an expression: `(a?){1000}` and the like
are short to write and slow in any engine. Alternatives without repetition are cheap, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

INSTRUCTIONS_MAX: Final = 10_000
"""Limit on the size of RE2's program. Hundreds of alternative topic names fit."""
INSTRUCTIONS_WITH_REPEATS_MAX: Final = 1_000
"""The limit for expressions with repetition: matching a name then takes well below a millisecond."""
PATTERN_CHARS_MAX: Final = 16_384
PATTERNS_KEPT: Final = 256

NAMES_PER_PIECE: Final = 16
"""Names matched between two points to pause: a few milliseconds with the most complex expression."""
INTERNAL_PREFIX: Final = "__"


class InvalidRegex(ValueError):
    """Not an RE2 regular expression, or one that is too large."""


class TopicPattern:
    """A compiled expression, which remembers the topics that it has matched, so that only new names are examined."""

    __slots__ = ("_matched", "_seen", "fullmatch")

    def __init__(self, fullmatch: Any) -> None:
        self.fullmatch = fullmatch
        self._seen: Mapping[str, object] = {}
        self._matched: frozenset[str] = frozenset()

    def matches(self, name: str) -> bool:
        """Whether the expression matches a whole name."""
        return self.fullmatch(name) is not None

    def among(self, topics: Mapping[str, object]) -> frozenset[str]:
        """The matching topics, without internal ones. Immediate if `prepare` has run over the same mapping."""
        for _ in self.prepare(topics):
            pass
        return self._matched

    def prepare(self, topics: Mapping[str, object]) -> Iterator[None]:
        """Do the work of `among` in pieces, with points to pause. `topics` must not be modified in place."""
        if topics is self._seen:
            return
        matched = {name for name in self._matched if name in topics}
        for count, name in enumerate(topics.keys() - self._seen.keys(), 1):
            if not name.startswith(INTERNAL_PREFIX) and self.fullmatch(name) is not None:
                matched.add(name)
            if count % NAMES_PER_PIECE == 0:
                yield
        self._seen, self._matched = topics, frozenset(matched)


@lru_cache(PATTERNS_KEPT)
def compile_topic_regex(pattern: str) -> TopicPattern:
    """The compiled expression for topic names. Raises InvalidRegex."""
    import re2  # takes 10 ms, and most brokers never need it

    if len(pattern) > PATTERN_CHARS_MAX:
        raise InvalidRegex(
            f"the expression has {len(pattern)} characters; at most {PATTERN_CHARS_MAX} are allowed"
        )
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise InvalidRegex(f"{pattern[:200]!r} is not a regular expression of RE2: {text[:200]}") from error
    repeats = any(sign in pattern for sign in "*+?{")
    allowed = INSTRUCTIONS_WITH_REPEATS_MAX if repeats else INSTRUCTIONS_MAX
    if compiled.programsize > allowed:
        raise InvalidRegex(
            f"{pattern[:200]!r} is too complex: it needs {compiled.programsize} RE2 instructions,"
            f" at most {allowed} are allowed"
        )
    return TopicPattern(compiled.fullmatch)
