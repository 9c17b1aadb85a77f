"""A registry's parsed schemas, and what is known about them. Pure.

Small schemas are parsed and compared where the registry runs, in a bounded number of steps. What would take more is left to
another process: `Needed` names the task, whoever called carries it out, hands its outcome to `remember`, and decides again.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.model import Content
from barnabas.registry.state import State
from barnabas.registry.subjects import parse_subject
from barnabas.registry.tasks import TOO_LONG, Asks, Desk, Outcome, Source, Task
from barnabas.schemas.errors import InvalidSchema, SchemaError
from barnabas.schemas.formats.base import Dependency, Parsed, Problem, TooDeep
from barnabas.schemas.formats.comparing import problems_reading
from barnabas.schemas.formats.pairs import OverBudget, Steps
from barnabas.schemas.formats.reading import read_schema
from barnabas.schemas.formats.tags import change_tags
from barnabas.schemas.model import Reference

CACHED_BYTES_MAX: Final = 64 << 20
CACHED_MAX: Final = 4_000
REFERENCES_MAX: Final = 1_000
OVERHEAD: Final = 500
"""About the size of an outcome besides its text."""


class Needed(Exception):
    """A decision needs the outcome of a task that is too large to be carried out here."""

    def __init__(self, task: Task) -> None:
        super().__init__(task.asks)
        self.task = task


class Allowance(NamedTuple):
    """How much of its work one decision may do itself. characters: of schemas to parse. steps: of comparisons."""

    characters: int
    steps: int


QUICK: Final = Allowance(characters=16 << 10, steps=1_000)
"""A few milliseconds of work, 15 in the worst case, which is Protobuf."""


class Library:
    """A cache of parsed schemas and of what was found out about them. allowance: None if nothing is left to others."""

    def __init__(self, state: State, allowance: Allowance | None = None) -> None:
        self.state = state
        self.allowance = allowance
        self._characters = 0
        self._steps = Steps(0)
        self._desk = Desk()
        self._cached: OrderedDict[Any, tuple[Any, int]] = OrderedDict()
        self._bytes = 0

    def begin(self) -> None:
        """Give the next decision its allowance."""
        if self.allowance is not None:
            self._characters, self._steps = self.allowance.characters, Steps(self.allowance.steps)

    def read(self, content: Content, context: str, *, new: bool = False) -> Schema:
        """A schema. context: of its references. new: it is about to be stored. Raises InvalidSchema, Needed."""
        dependencies = self.dependencies(content.references, context)
        key = (content.fingerprint, new, tuple(d.text for d in dependencies))
        schema: Schema | None = self._get(key)
        if schema is None:
            source = Source(content.type, content.text, tuple(dependencies), new)
            schema = Schema(self, source, self._parse(source))
            if schema.is_here or self._is_large(
                source
            ):  # another decision may have the steps for a small one
                self._put(key, schema, source.size)
        return schema

    def _is_large(self, source: Source) -> bool:
        return self.allowance is not None and source.size > self.allowance.characters

    def _parse(self, source: Source) -> Parsed | None:
        """The parsed schema; None if that is left to others."""
        if self.allowance is None:
            try:
                return read_schema(source.kind, source.text, source.dependencies, new=source.new)
            except OverBudget:
                raise InvalidSchema(TOO_LONG.value) from None
        if source.size > self._characters:
            return None
        self._characters -= source.size
        try:
            return read_schema(
                source.kind, source.text, source.dependencies, new=source.new, steps=self._steps
            )
        except (OverBudget, TooDeep):  # how deep is too deep depends on who calls
            return None

    def answer(self, task: Task, here: Callable[[Steps | None], Any] | None) -> Any:
        """The answer to a task: the known one, or else `here()`, or else Needed is raised. Raises RegistryError.

        here: finds it out in the steps that are left; None if this is left to others.
        """
        key = task.key
        outcome: Outcome | None = self._get(key)
        if outcome is None and here is not None:
            try:
                outcome = Outcome(0, here(None if self.allowance is None else self._steps))
            except SchemaError as error:
                outcome = Outcome(error.code, error.message)
            except OverBudget:
                outcome = None
            if outcome is not None:
                self.remember(task, outcome)
        if outcome is None:
            if self.allowance is not None:
                raise Needed(task)
            outcome = self._desk.carry_out(task)
            self.remember(task, outcome)
        return outcome.result()

    def remember(self, task: Task, outcome: Outcome) -> None:
        """Keep the outcome of a task for the decisions that need it."""
        self._put(task.key, outcome, OVERHEAD + outcome.size)

    def tagged(self, content: Content, changes: Sequence[Sequence[Mapping[str, Any]]]) -> str:
        """The text of a schema with its tags changed. Raises InvalidSchema, Needed."""
        source = Source(content.type, content.text, (), False)
        task = Task(Asks.TAGGED, (source,), json.dumps(changes))
        if self.allowance is not None and len(content.text) + len(task.more) > self.allowance.characters:
            return str(self.answer(task, None))
        return str(self.answer(task, lambda _: change_tags(content.type, content.text, changes)))

    def _get(self, key: Any) -> Any:
        entry = self._cached.get(key)
        if entry is None:
            return None
        self._cached.move_to_end(key)
        return entry[0]

    def _put(self, key: Any, value: Any, size: int) -> None:
        gone = self._cached.pop(key, None)
        self._bytes += size - (gone[1] if gone else 0)
        self._cached[key] = (value, size)
        while len(self._cached) > CACHED_MAX or (self._bytes > CACHED_BYTES_MAX and len(self._cached) > 1):
            _, (_, lost) = self._cached.popitem(last=False)
            self._bytes -= lost

    def dependencies(self, references: Sequence[Reference], context: str) -> list[Dependency]:
        """All schemas that these refer to, also indirectly, innermost first. Raises InvalidSchema if one is missing."""
        dependencies: dict[tuple[str, str, int], Dependency] = {}
        self._collect(references, context, dependencies, ())
        return list(dependencies.values())

    def _collect(
        self,
        references: Sequence[Reference],
        context: str,
        dependencies: dict[tuple[str, str, int], Dependency],
        above: tuple[tuple[str, int], ...],
    ) -> None:
        for reference in references:
            subject = parse_subject(reference.subject, context)
            place = (str(subject), reference.version)
            if place in above:
                way = " -> ".join(f"{name} {version}" for name, version in (*above, place))
                raise InvalidSchema(f"references form a cycle: {way}")
            key = (reference.name, *place)
            if key in dependencies:
                continue
            versions = self.state.subjects.get(subject)
            version = None if versions is None else versions.by_number.get(reference.version)
            if version is None:
                raise InvalidSchema(
                    f"reference {reference.name!r}: version {reference.version} of subject {str(subject)!r} does not "
                    "exist; register it first"
                )
            if len(dependencies) >= REFERENCES_MAX or len(above) > 100:
                raise InvalidSchema(
                    f"more than {REFERENCES_MAX} references; put several types into one schema"
                )
            self._collect(version.content.references, subject.context, dependencies, (*above, place))
            dependencies[key] = Dependency(reference.name, reference, version.content.text)

    def resolve_latest(self, references: Sequence[Reference], context: str) -> tuple[Reference, ...]:
        """References in which version -1, the latest, is replaced by its number. Raises RegistryError."""
        resolved = []
        for reference in references:
            if reference.version == -1:
                live = self.state.versions(parse_subject(reference.subject, context))
                if not live:
                    raise RegistryError(
                        Code.INVALID_SCHEMA,
                        f"reference {reference.name!r}: subject {reference.subject!r} has no version; register one",
                    )
                reference = reference._replace(version=live[-1].version)
            resolved.append(reference)
        return tuple(resolved)


class Schema:
    """A schema in a library. Its answers are found out once; each method raises RegistryError, or Needed."""

    def __init__(self, library: Library, source: Source, parsed: Parsed | None) -> None:
        self._library = library
        self._source = source
        self._parsed = parsed

    @property
    def is_here(self) -> bool:
        """Whether it has been parsed in this process."""
        return self._parsed is not None

    @property
    def canonical(self) -> str:
        """The text that is stored."""
        if self._parsed is not None:
            return self._parsed.canonical
        return str(self._library.answer(Task(Asks.CANONICAL, (self._source,)), None))

    def require_valid(self) -> None:
        """Raises InvalidSchema if it cannot be parsed."""
        assert self.canonical is not None

    def normalized(self) -> str:
        """A text that is the same for schemas that differ only in order or spelling."""
        return str(self._ask(Asks.NORMALIZED, lambda parsed: parsed.normalized()))

    def formatted(self, style: str) -> str:
        """The text in one of the formats of its language."""
        return str(self._ask(Asks.FORMATTED, lambda parsed: parsed.formatted(style), style))

    def field_names(self) -> list[str]:
        """Names of the fields of the outermost record, object or message."""
        return list(self._ask(Asks.FIELDS, lambda parsed: parsed.field_names()))

    def _ask(self, asks: Asks, here: Callable[[Parsed], Any], more: str = "") -> Any:
        parsed, task = self._parsed, Task(asks, (self._source,), more)
        return self._library.answer(task, None if parsed is None else lambda _: here(parsed))

    def problems_reading(self, writer: Schema) -> list[Problem]:
        """Why this schema cannot read data written with `writer`; empty if it can."""
        ours, theirs = self._parsed, writer._parsed
        task = Task(Asks.PROBLEMS, (self._source, writer._source))
        if ours is None or theirs is None:
            rows = self._library.answer(task, None)
        else:
            rows = self._library.answer(task, lambda steps: _compared(ours, theirs, steps))
        return [Problem(*row) for row in rows]


def _compared(reader: Parsed, writer: Parsed, steps: Steps | None) -> list[Any]:
    problems = [tuple(problem) for problem in problems_reading(reader, writer, steps)]
    if steps is not None and any(kind == "NESTED_TOO_DEEPLY" for kind, *_ in problems):
        raise OverBudget  # how deep is too deep depends on who calls
    return problems
