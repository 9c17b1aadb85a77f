"""Steps of user code: what they keep for each key, and what they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from barnabas.pipelines.plan.expressions import Expression
from barnabas.pipelines.plan.operators import Operator
from barnabas.pipelines.plan.places import ASIDE
from barnabas.pipelines.plan.schema import Schema

Times = Literal["none", "event", "clock"]
"""What a step's timers go by: nothing, so that there are none; the event time of its rows; or the clock."""


@dataclass(frozen=True, slots=True)
class State:
    """What is kept for each key under a name. key: the type of a map's keys. ttl_ms: how long after the last change an
    entry is kept, by the clock; None: until it is removed."""

    kind: Literal["value", "list", "map"]
    type: str
    key: str | None = None
    ttl_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of a step that aggregates. length_ms: of a window; for sessions, the pause that ends one. slide_ms: how
    often a window begins. start, end: the fields for a window's bounds; end empty: none. final: whether results are made
    once, when a window is over, or at each row."""

    kind: Literal["every", "session", "sliding"]
    length_ms: int
    slide_ms: int
    start: str = "window"
    end: str = ""
    final: bool = True

    @property
    def names(self) -> list[str]:
        """The fields that it adds."""
        return [self.start, *([self.end] if self.end else [])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Process(Operator):
    """Calls user code for each row. called: how the pipeline names the code. code: a subclass of processing.Processor.
    windows: of code that aggregates; its results also have the key's fields and the window's bounds, which `returns` does
    not name. of_app: whether it is a part of an app (barnabas.streams), whose stores have their own retention."""

    kind: ClassVar[str] = "process"
    stateful: ClassVar[bool] = True
    called: str
    key: tuple[Expression, ...]
    states: Mapping[str, State]
    returns: Mapping[str, str]
    time: Times = "none"
    windows: Windows | None = None
    code: Any = field(default=None, compare=False, repr=False, metadata=ASIDE)
    of_app: bool = field(default=False, metadata=ASIDE)

    def after(self, schema: Schema) -> Schema:
        if self.windows is None:
            return Schema().put(self.returns)
        types = {key.text: schema.type_of(key.text) for key in self.key}
        return Schema().put({**types, **dict.fromkeys(self.windows.names, "timestamp"), **self.returns})
