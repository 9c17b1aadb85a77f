"""Data contracts: the domain rules of a schema, executed when its records are written and read. Pure.

Which rules run, in which order, and the effect of a failure are the same as in Confluent's serializers: conditions refuse a
value, transforms replace it; a rule for fields processes the fields that have one of its tags. Source: Confluent's
documentation of data contracts, and confluent-kafka's serializers, which the tests compare with.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple, Protocol

from barnabas.schemas.codecs import Mismatch
from barnabas.schemas.errors import InvalidSchema
from barnabas.schemas.expressions import BadExpression, Expression, bounded, compiled, split_guard

WRITE: Final = "WRITE"
READ: Final = "READ"
MODES: Final = {"WRITEREAD": (WRITE, READ), WRITE: (WRITE,), READ: (READ,)}
CONDITION: Final = "CONDITION"
FIELD_TYPES: Final = frozenset({"CEL_FIELD"})
PRIMITIVE: Final = frozenset({"INT", "LONG", "FLOAT", "DOUBLE", "BOOLEAN", "NULL", "STRING", "BYTES"})
SHOWN_MAX: Final = 300
WILDCARDS: Final = frozenset({"*", "**", "?"})
PATHS_MAX: Final = 2_000


class RuleFailed(Mismatch):
    """A rule refuses a value. dead_letters: the topic for such values, if the rule names one."""

    def __init__(self, message: str, rule: str, dead_letters: str | None) -> None:
        super().__init__(message)
        self.rule = rule
        self.dead_letters = dead_letters

    def headers(self, subject: str, topic: str) -> list[tuple[str, bytes | None]]:
        """What Confluent's serializers put beside a record that a rule refuses, in the topic for such records."""
        rows = {"name": self.rule, "mode": WRITE, "subject": subject, "topic": topic, "exception": str(self)}
        return [(f"__rule.{name}", value.encode("utf-8", "replace")) for name, value in rows.items()]


class Field(NamedTuple):
    """A field that is visited while a value is walked. kind: INT, STRING, RECORD ... tags: those that the schema has at the
    field. container: the record that contains it. native: what else is needed to turn its value into an argument. declared:
    whether the schema names the field, and does not just permit fields that it does not name. maps: the full names of the
    maps that contain the field, whose tags it has too."""

    full_name: str
    name: str
    kind: str
    tags: frozenset[str]
    container: Any
    native: Any = None
    declared: bool = True
    maps: tuple[str, ...] = ()


Visit = Callable[[Field, Any], Any]


class SchemaLanguage(Protocol):
    """What rules need to know about a schema's language."""

    def walk(self, value: Any, visit: Visit) -> Any:
        """The value, with each field's value replaced by the result of `visit`. May modify the value in place."""
        ...

    def argument(self, value: Any, field: Field | None = None) -> Any:
        """A value in the form in which expressions see it."""
        ...

    def result(self, value: Any, like: Any) -> Any:
        """The result of a transform, converted to take the place of `like`."""
        ...


@dataclass(frozen=True)
class Rule:
    """One rule. on_success, on_failure: NONE, ERROR, DLQ, or a pair of them for writing and reading."""

    name: str
    kind: str
    mode: str
    type: str
    expr: str
    tags: frozenset[str]
    on_success: str
    on_failure: str
    dead_letters: str | None
    doc: str

    @cached_property
    def expressions(self) -> tuple[Expression | None, Expression]:
        """(guard, if there is one, and the expression after it). Raises BadExpression, RulesMissing."""
        if self.type not in ("CEL", "CEL_FIELD"):
            raise BadExpression(f"rules of type {self.type or 'null'} are not executed here")
        guard, rest = split_guard(self.expr)
        return compiled(guard) if guard.strip() else None, compiled(rest)

    def action(self, outcome: str, mode: str) -> str:
        """The action for an outcome, on_success or on_failure."""
        is_failure = outcome == "on_failure"
        text = self.on_failure if is_failure else self.on_success
        if self.mode == "WRITEREAD" and "," in text:
            text = text.split(",")[mode == READ]
        return text or ("ERROR" if is_failure else "NONE")


class Rules:
    """The domain rules of one schema, for both directions."""

    def __init__(self, contract: str, shape: SchemaLanguage) -> None:
        """contract: the schema's `ruleSet` and `metadata` as JSON text."""
        fields = json.loads(contract)
        metadata = fields.get("metadata") or {}
        self._shape = shape
        self._tagged = [
            (wildcard(path), frozenset(tags)) for path, tags in (metadata.get("tags") or {}).items()
        ]
        self._tags_of = lru_cache(PATHS_MAX)(self._matching_tags)
        rules = rules_of(fields)
        self._by_mode = {
            WRITE: [rule for rule in rules if WRITE in MODES.get(rule.mode, ())],
            READ: [rule for rule in reversed(rules) if READ in MODES.get(rule.mode, ())],
        }

    def has(self, mode: str) -> bool:
        """Whether there are rules for the mode, WRITE or READ."""
        return bool(self._by_mode[mode])

    def changes(self, mode: str) -> bool:
        """Whether the rules for WRITE or READ may change a value."""
        return any(rule.kind != CONDITION for rule in self._by_mode[mode])

    def applied(self, mode: str, value: Any) -> Any:
        """The value after applying the rules for WRITE or READ. Raises RuleFailed, RulesMissing."""
        rules = self._by_mode[mode]
        if value is None:
            return value
        for index, rule in enumerate(rules):
            others = rules[:index] if mode == WRITE else rules[index + 1 :]
            if rule.type in FIELD_TYPES and _is_repeated(rule, others):
                continue
            try:
                value = self._run_guarded(rule, value)
            except (Mismatch, BadExpression) as error:
                reason = f": {error}" if isinstance(error, BadExpression) else ""
                self._act(rule, rule.action("on_failure", mode), reason)
            else:
                self._act(rule, rule.action("on_success", mode), "")
        return value

    def _act(self, rule: Rule, action: str, reason: str) -> None:
        if action == "NONE":
            return
        doc = f" ({rule.doc})" if rule.doc else ""
        why = (reason or (f": {rule.expr}" if rule.kind == CONDITION else ""))[:SHOWN_MAX]
        text = f"rule {rule.name!r}{doc} refuses the value{why}"
        if action not in ("ERROR", "DLQ"):
            text += f"; its action {action!r} is not known here"
        raise RuleFailed(text, rule.name, rule.dead_letters if action == "DLQ" else None)

    def _run_guarded(self, rule: Rule, value: Any) -> Any:
        """As _run, for any value: one record must not stop the work on all others."""
        try:
            with bounded():
                return self._run(rule, value)
        except (Mismatch, BadExpression, InvalidSchema):
            raise
        except RecursionError:
            raise BadExpression("the value is nested too deeply") from None
        except Exception as error:  # conversions and libraries may raise anything
            reason = " ".join(str(error).split()) or type(error).__name__
            raise BadExpression(f"the value is not one that rules can look at: {reason[:200]}") from error

    def _run(self, rule: Rule, value: Any) -> Any:
        """The value after applying one rule. Raises Mismatch if a condition is not met, BadExpression."""
        if rule.type in FIELD_TYPES:
            return self._run_on_fields(rule, value)
        shape = self._shape
        holds, new_value = _evaluated(rule, {"message": shape.argument(value)})
        if rule.kind == CONDITION:
            _require(new_value if holds else True)
            return value
        return shape.result(new_value, value) if holds else value

    def _run_on_fields(self, rule: Rule, value: Any) -> Any:
        shape = self._shape
        looks_at_record = "message" in rule.expr
        seen: tuple[Any, str, Any] = (None, "", None)

        def record_of(field: Field) -> Any:
            """The field's record as an argument; made once for all values in a list."""
            nonlocal seen
            if seen[0] is not field.container or seen[1] != field.full_name:
                seen = (field.container, field.full_name, shape.argument(field.container))
            return seen[2]

        def visit(field: Field, inner: Any) -> Any:
            tags = self._tags_at(field)
            if not rule.tags & tags if rule.tags else not field.declared:
                return inner
            if field.kind not in PRIMITIVE:
                self._require_no_leaf(rule, field)
                return inner
            arguments = {
                "value": shape.argument(inner, field),
                "fullName": field.full_name,
                "name": field.name,
                "typeName": field.kind,
                "tags": sorted(tags),
            }
            if looks_at_record:
                arguments["message"] = record_of(field)
            holds, new_value = _evaluated(rule, arguments)
            if rule.kind == CONDITION:
                _require(new_value if holds else True)
                return inner
            return new_value if holds else inner

        return shape.walk(value, visit)

    def _require_no_leaf(self, rule: Rule, field: Field) -> None:
        """Raises BadExpression for a field that has a tag of the rule although rules cannot process it: it must not pass
        unchanged. A path that ends in a wildcard may match a record, too, but is meant for the fields in it."""
        if not rule.tags or (field.kind == "RECORD" and not rule.tags & (field.tags | self._named(field))):
            return
        hint = "tag the fields in it" if field.kind == "RECORD" else "it has to be of a primitive type"
        raise BadExpression(
            f"{field.full_name} has a tag of the rule and is of kind {field.kind}, which rules for fields do not "
            f"look at; {hint}"
        )

    def _named(self, field: Field) -> frozenset[str]:
        """Tags that the metadata assigns by a path without a wildcard at its end, which is meant for just this field."""
        paths = (field.full_name, *field.maps)
        meant = (item for item in self._tagged if not WILDCARDS.issuperset(item[0][-1:]))
        return frozenset().union(
            *(tags for pattern, tags in meant if any(matches(pattern, path) for path in paths))
        )

    def _tags_at(self, field: Field) -> frozenset[str]:
        if not self._tagged:
            return field.tags
        return field.tags.union(*map(self._tags_of, (field.full_name, *field.maps)))

    def _matching_tags(self, full_name: str) -> frozenset[str]:
        """The tags that the metadata assigns to a field by its path."""
        tags_found: frozenset[str] = frozenset()
        for pattern, tags in self._tagged:
            if matches(pattern, full_name):
                tags_found |= tags
        return tags_found


def rules_of(contract: Mapping[str, Any]) -> list[Rule]:
    """The enabled domain rules that run in clients."""
    properties = (contract.get("metadata") or {}).get("properties") or {}
    rule_set = contract.get("ruleSet") or {}
    if (rule_set.get("enableAt") or "ALL") not in ("ALL", "CLIENT"):
        return []
    rules = []
    for row in rule_set.get("domainRules") or ():
        if row.get("disabled"):
            continue
        rules.append(
            Rule(
                name=row["name"],
                kind=row.get("kind") or "TRANSFORM",
                mode=row.get("mode") or "WRITEREAD",
                type=(row.get("type") or "").upper(),
                expr=row.get("expr") or "",
                tags=frozenset(row.get("tags") or ()),
                on_success=row.get("onSuccess") or "",
                on_failure=row.get("onFailure") or "",
                dead_letters=(row.get("params") or {}).get("dlq.topic") or properties.get("dlq.topic"),
                doc=row.get("doc") or "",
            )
        )
    return rules


def _is_repeated(rule: Rule, others: Iterable[Rule]) -> bool:
    """Of transforms with the same tags only the first in the schema runs, in either direction."""
    return (
        bool(rule.tags)
        and rule.kind != CONDITION
        and any(
            (other.kind, other.mode, other.type, other.tags) == (rule.kind, rule.mode, rule.type, rule.tags)
            for other in others
        )
    )


def _evaluated(rule: Rule, arguments: dict[str, Any]) -> tuple[bool, Any]:
    """Whether the guard is true, and in that case the value of the expression."""
    guard, body = rule.expressions
    if guard is not None and not guard(arguments):
        return False, None
    return True, body(arguments)


def _require(verdict: Any) -> None:
    if not verdict:
        raise Mismatch


def wildcard(path: str) -> list[str]:
    """A path in metadata.tags: `*` matches a part of a name, `**` any number of names, `?` one character."""
    parts: list[str] = []
    for part in re.findall(r"\*\*|\*|.", path, re.DOTALL):
        if not (part in ("*", "**") and parts and parts[-1] == "**"):
            parts.append(part)
    return parts


def matches(pattern: list[str], name: str) -> bool:
    """Takes time proportional to the product of the lengths; a regular expression could take exponential time."""
    reached = [True] + [False] * len(name)  # whether the parts so far match the first n characters
    for part in pattern:
        next_reached, holds = [], False
        for index, was in enumerate(reached):
            before = name[index - 1] if index else ""
            if part == "**":
                holds = holds or was
            elif part == "*":
                holds = was or (holds and before != ".")
            else:
                fits = before == part or (part == "?" and before != ".")
                holds = index > 0 and reached[index - 1] and fits
            next_reached.append(holds)
        reached = next_reached
    return reached[-1]
