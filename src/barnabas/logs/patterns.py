"""Lines of one kind become one pattern with `<*>` where they differ, and are counted: Drain's way (He et al., 2017).

Lines with the same number of words and the same first word are compared word by word with the patterns found so far; the
most similar one takes the line, if at least half of the words are equal. Numbers, addresses and the like are replaced
before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

ANY: Final = "<*>"
MASKS: Final = re.compile(
    r"""(?x)
    [0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}
    | \d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)?
    | \d{1,2}/\w{3}/\d{4}:\d\d:\d\d:\d\d[ ][+-]\d{4}
    | \b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b
    | \b0x[0-9a-fA-F]+\b | \b(?=[a-f]*\d)[0-9a-f]{8,}\b
    | (?<![\w.])[+-]?\d+(?:[.,:]\d+)*(?![\w.])
    """
)
SIMILAR: Final = 0.5
WORDS_MAX: Final = 60
"""Of longer lines, only the beginning is looked at."""
PATTERNS_MAX: Final = 5000


@dataclass(slots=True, eq=False)
class Pattern:
    """words: with ANY in place of those that differ. first, last: times (ms) of its lines. example: one of them."""

    words: list[str]
    example: str
    count: int = 0
    before: int = 0
    """How many of its lines are older than what is looked at."""
    first: int = 1 << 62
    last: int = 0
    level: str = ""

    @property
    def text(self) -> str:
        """The pattern as text."""
        return " ".join(self.words)


@dataclass(slots=True)
class Patterns:
    """The patterns of lines."""

    patterns: list[Pattern] = field(default_factory=list)
    _by_shape: dict[tuple[int, str], list[Pattern]] = field(default_factory=dict)

    def add(self, message: str, time: int, level: str = "", *, is_before: bool = False) -> Pattern:
        """Count a line. is_before: it is older than what is looked at."""
        words = MASKS.sub(ANY, message.partition("\n")[0]).split(None, WORDS_MAX)[:WORDS_MAX]
        first = words[0] if words else ""
        shape = (len(words), ANY if any(letter.isdigit() for letter in first) else first)
        near = self._by_shape.setdefault(shape, [])
        pattern = self._most_similar(words, near)
        if pattern is None:
            pattern = Pattern(words, message)
            if len(self.patterns) < PATTERNS_MAX:
                self.patterns.append(pattern)
                near.append(pattern)
        else:
            mine = pattern.words
            if mine != words:
                pattern.words = [one if one == other else ANY for one, other in zip(mine, words, strict=True)]
        if is_before:
            pattern.before += 1
        else:
            pattern.count += 1
            pattern.first, pattern.last = min(pattern.first, time), max(pattern.last, time)
            pattern.level = pattern.level or level
        return pattern

    def _most_similar(self, words: list[str], near: list[Pattern]) -> Pattern | None:
        best, most = None, -1.0
        for pattern in near:
            if pattern.words == words:
                return pattern
            same = sum(one == other for one, other in zip(pattern.words, words, strict=True))
            if same > most:
                best, most = pattern, same
        return best if best is not None and most >= SIMILAR * max(len(words), 1) else None

    def common(self) -> list[Pattern]:
        """Those that are not only of before, the most frequent first."""
        return sorted((one for one in self.patterns if one.count), key=lambda one: (-one.count, one.text))
