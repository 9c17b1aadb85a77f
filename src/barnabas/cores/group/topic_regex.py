"""Topic subscriptions by regular expression, in time linear in the length of a topic's name.

Kafka's brokers match with RE2, which has no look-around and no back-references and never backtracks.
Python's `re` backtracks: one hostile pattern would stop the whole broker. So a pattern is parsed by `re`,
refused where RE2 would refuse it, and run by `re` only if it cannot backtrack far; any other pattern is run
here as a set of states that moves along the name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as sre_parser  # type: ignore[attr-defined]
from typing import Any, Final

STATES_MAX: Final = 5_000
REPEATS_FOR_RE_MAX: Final = 2

Matches = Callable[[str], bool]


class InvalidRegex(ValueError):
    """Not a regular expression, or one that needs more than a linear search."""


def compile_topic_regex(pattern: str) -> Matches:
    """A test whether a whole topic name matches. Raises InvalidRegex."""
    try:
        tree = sre_parser.parse(pattern)
        program = _Program(tree)
        backtracks = _Backtracking(tree)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidRegex(f"{pattern!r} is not a regular expression: {error}") from error
    if not backtracks.nested and backtracks.repeats <= REPEATS_FOR_RE_MAX:
        search = re.compile(pattern).fullmatch
        return lambda name: search(name) is not None
    if tree.state.flags & ~re.UNICODE:
        raise InvalidRegex("flags are only supported in simpler expressions")
    return program.matches


class _Backtracking:
    """How far `re` could go back: repeats inside repeats are exponential, many in a row polynomial."""

    def __init__(self, tree: Any) -> None:
        self.repeats = 0
        self.nested = False
        self._walk(tree, inside=False)

    def _walk(self, tree: Any, *, inside: bool) -> None:
        for op, argument in tree:
            if op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
                _, high, body = argument
                if high > 1:
                    self.repeats += 1
                    self.nested = self.nested or inside
                self._walk(body, inside=inside or high > 1)
            elif op is sre.SUBPATTERN:
                self._walk(argument[-1], inside=inside)
            elif op is sre.BRANCH:
                self.nested = self.nested or inside
                for branch in argument[1]:
                    self._walk(branch, inside=inside)


class _Program:
    """A nondeterministic automaton: state i tests one character or leads on without one."""

    def __init__(self, tree: Any) -> None:
        self.tests: list[Matches | None] = []
        self.nexts: list[list[int]] = []
        self.anchors: dict[int, Any] = {}
        self.accept = self._state()
        self.start = self._sequence(tree, self.accept)

    def _state(self, test: Matches | None = None, *nexts: int) -> int:
        if len(self.tests) >= STATES_MAX:
            raise InvalidRegex(f"the expression needs more than {STATES_MAX} states")
        self.tests.append(test)
        self.nexts.append(list(nexts))
        return len(self.tests) - 1

    def _sequence(self, tree: Any, after: int) -> int:
        for op, argument in reversed(list(tree)):
            after = self._one(op, argument, after)
        return after

    def _one(self, op: Any, argument: Any, after: int) -> int:
        if op in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN):
            return self._state(_character_test(op, argument), after)
        if op is sre.SUBPATTERN:
            _, add_flags, drop_flags, body = argument
            if add_flags or drop_flags:
                raise InvalidRegex("flags inside an expression are not supported")
            return self._sequence(body, after)
        if op is sre.BRANCH:
            return self._state(None, *(self._sequence(branch, after) for branch in argument[1]))
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            return self._repeat(argument, after)
        if op is sre.AT:
            anchor = self._state(None, after)
            self.anchors[anchor] = argument
            return anchor
        raise InvalidRegex(f"{str(op).lower()} is not supported: it needs more than a linear search")

    def _repeat(self, argument: Any, after: int) -> int:
        low, high, body = argument
        if high == sre.MAXREPEAT:
            loop = self._state(None, after)
            self.nexts[loop].insert(0, self._sequence(body, loop))
            after = loop
        else:
            for _ in range(high - low):
                after = self._state(None, self._sequence(body, after), after)
        for _ in range(low):
            after = self._sequence(body, after)
        return after

    def matches(self, name: str) -> bool:
        states = self._closure({self.start}, at_start=True, at_end=not name)
        for index, character in enumerate(name):
            moved = set()
            for state in states:
                test = self.tests[state]
                if test is not None and test(character):
                    moved.update(self.nexts[state])
            if not moved:
                return False
            states = self._closure(moved, at_start=False, at_end=index == len(name) - 1)
        return self.accept in states

    def _closure(self, states: set[int], *, at_start: bool, at_end: bool) -> set[int]:
        seen, todo = set(states), list(states)
        while todo:
            state = todo.pop()
            if self.tests[state] is not None or not self._anchor_holds(state, at_start, at_end):
                continue
            for following in self.nexts[state]:
                if following not in seen:
                    seen.add(following)
                    todo.append(following)
        return seen

    def _anchor_holds(self, state: int, at_start: bool, at_end: bool) -> bool:
        anchor = self.anchors.get(state)
        if anchor is None:
            return True
        if anchor in (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING):
            return at_start
        if anchor in (sre.AT_END, sre.AT_END_STRING):
            return at_end
        raise InvalidRegex("word boundaries are not supported in topic expressions")


_CATEGORIES: Final[dict[Any, Matches]] = {
    sre.CATEGORY_DIGIT: lambda c: c in "0123456789",
    sre.CATEGORY_NOT_DIGIT: lambda c: c not in "0123456789",
    sre.CATEGORY_SPACE: str.isspace,
    sre.CATEGORY_NOT_SPACE: lambda c: not c.isspace(),
    sre.CATEGORY_WORD: lambda c: c == "_" or c.isalnum(),
    sre.CATEGORY_NOT_WORD: lambda c: c != "_" and not c.isalnum(),
}


def _character_test(op: Any, argument: Any) -> Matches:
    if op is sre.ANY:
        return lambda c: c != "\n"
    if op is sre.LITERAL:
        return chr(argument).__eq__
    if op is sre.NOT_LITERAL:
        return chr(argument).__ne__
    negate = argument[0][0] is sre.NEGATE
    tests = [_member_test(kind, value) for kind, value in argument if kind is not sre.NEGATE]
    return lambda c: any(test(c) for test in tests) != negate


def _member_test(kind: Any, value: Any) -> Matches:
    if kind is sre.LITERAL:
        return chr(value).__eq__
    if kind is sre.RANGE:
        low, high = chr(value[0]), chr(value[1])
        return lambda c: low <= c <= high
    return _CATEGORIES[value]
