"""Where rows go: the sinks of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.pipelines.plan.expressions import Expression
from barnabas.pipelines.plan.operators import Operator, RegistryPlace
from barnabas.pipelines.plan.places import ASIDE
from barnabas.pipelines.plan.relations import SOURCE, Aggregate


@dataclass(frozen=True, slots=True)
class Target:
    """An output's target other than a topic. kind: its name in kinds/targets/. options: checked."""

    kind: str
    options: Mapping[str, Any] = field(metadata=ASIDE)


@dataclass(frozen=True, slots=True)
class Route:
    """Chooses each record's topic. by: its value. topics: topic by value of `by`; empty: the value is the topic's name.
    Records with another value, or null, go to the output's own topic. also: topics among those that values name, which are
    made if they are missing."""

    by: Expression
    topics: Mapping[str, str] = field(default_factory=dict)
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stores:
    """Stores of user code whose changes are rows of an output, but no records: they are kept where they can be looked up.
    layouts: by store (views/stores.py). about: whether a row is such a change. store, key, kept: the fields with the
    store, and with the key and all that is kept for it now, as texts. version: the field by which later changes of a key
    are known. processes: by store, how many steps of user code come after the one whose state has it, which is Spark's
    number of that step; in its `state`, a store's entries are under its name, `separator` and the key. ttls_ms: by store,
    how long after its last change an entry is kept."""

    layouts: Mapping[str, str]
    about: Expression
    store: str
    key: str
    kept: str
    version: str
    processes: Mapping[str, int]
    state: str
    separator: str
    ttls_ms: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Output:
    """Where rows of a relation go. value None: a JSON object of all fields. where: file and line by entry, for messages.
    relation: whose rows it writes; empty: the only one that nothing reads. keeps: whether it is the changelog of that
    relation, a table, from which it is rebuilt. schema: the subject of the schema with which the value is encoded; encoded:
    the fields that are; none: all. present: rows for which it is not true have no value.
    key_schema: the subject of the schema with which the key is encoded; key_fields: the fields that are; `key` is then what
    follows it."""

    name: str
    topic: str
    key: Expression | None = None
    value: Expression | None = None
    timestamp: Expression | None = None
    headers: Mapping[str, Expression] = field(default_factory=dict)
    operators: tuple[Operator, ...] = ()
    aggregate: Aggregate | None = None
    partitions: int = field(default=-1, metadata=ASIDE)
    config: Mapping[str, str] = field(default_factory=dict, metadata=ASIDE)
    options: Mapping[str, str] = field(default_factory=dict, metadata=ASIDE)
    trigger: str | None = field(default=None, metadata=ASIDE)
    route: Route | None = None
    target: Target | None = None
    relation: str = SOURCE
    where: Mapping[str, str] = field(default_factory=dict, compare=False)
    schema: RegistryPlace | None = None
    encoded: tuple[str, ...] = ()
    present: Expression | None = None
    key_schema: RegistryPlace | None = None
    key_fields: tuple[str, ...] = ()
    stores: Stores | None = field(default=None, metadata=ASIDE)
    keeps: bool = field(default=False, metadata=ASIDE)

    def at(self, entry: str = "") -> str:
        """File and line of one of its entries, or else of the output."""
        return self.where.get(entry) or self.where.get("", "")

    @property
    def destination(self) -> str:
        """The topic or kind of target, for display."""
        return self.topic or (self.target.kind if self.target is not None else "")

    def may_share(self) -> bool:
        """Whether the output may share a query with others."""
        plain = self.target is None and self.aggregate is None and not self.operators
        return plain and self.stores is None and not self.keeps

    def topics(self) -> tuple[str, ...]:
        """The topics that it may write to, as far as the pipeline names them."""
        routed = (*self.route.topics.values(), *self.route.also) if self.route is not None else ()
        return tuple(dict.fromkeys(name for name in [self.topic, *routed, self.changelog] if name))

    @property
    def changelog(self) -> str:
        """The compacted topic for the changes of what it keeps; empty without one."""
        return (self.target.options.get("changelog") or "") if self.target is not None else ""


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Partitions and config with which the dead-letter topic is created if it does not exist. where: file and line of the
    topic's entry."""

    partitions: int = 1
    config: Mapping[str, str] = field(default_factory=dict)
    where: str = field(default="", compare=False)
