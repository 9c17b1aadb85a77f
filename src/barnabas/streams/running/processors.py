"""Nodes of users' processors: their context, their stores, and what is called by time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from barnabas.streams.durations import milliseconds
from barnabas.streams.errors import StreamsError
from barnabas.streams.records import Headers, Record, pairs_of
from barnabas.streams.running.run import Node, Place, Run
from barnabas.streams.running.stores_of_users import VIEWS, StoreSpec

K = TypeVar("K")
V = TypeVar("V")
STREAM_TIME, WALL_CLOCK = "stream_time", "wall_clock"
SCHEDULE: Final = "\x1eschedule"


class Processor(Generic[K, V]):
    """User code that takes records and may keep state: `process(record)` forwards with `self.context.forward(...)`.

    What is to be remembered belongs into stores: an object lives no longer than a micro-batch.
    """

    context: Context

    def init(self, context: Context) -> None:
        """Called before the first record: the place to look up stores and to schedule calls."""

    def process(self, record: Record[K, V]) -> Any:
        """Called for each record. May also return or yield records, or pairs of key and value, to be forwarded."""
        raise NotImplementedError(f"{type(self).__name__} has no method process(self, record)")

    def close(self) -> None:
        """Called at the end of a micro-batch."""


@dataclass
class Scheduled:
    """A function that is called by time."""

    every_ms: int
    by: str
    call: Callable[[int], Any]
    number: int
    cancelled: bool = False

    def cancel(self) -> None:
        """Ends the calls until the processor schedules them again."""
        self.cancelled = True


@dataclass
class Context:
    """What a processor may use. key_fixed: keys must not change (`process_values`)."""

    run: Run
    node: Process
    record: Record[Any, Any] | None = None
    scheduled: list[Scheduled] = field(default_factory=list)
    time: int = 0

    def forward(
        self, key: Any, value: Any = None, *, timestamp: int | None = None, headers: Any = None
    ) -> None:
        """Sends on a record, or a key and a value with the present record's timestamp and headers."""
        if isinstance(key, Record):
            record = key
        else:
            base = self.record or Record(None, None, self.time)
            record = base.put(key=key, value=value)
        if timestamp is not None:
            record = record.put(timestamp=timestamp)
        if headers is not None:
            record = record.put(headers=pairs_of(headers))
        if self.node.fixed and self.record is not None and record.key != self.record.key:
            raise StreamsError(f"{self.node.name}: process_values must not change keys: use process")
        self.run.forward(self.node, record)

    def store(self, name: str) -> Any:
        """The store of this name, which must be one of the step's `stores`. Raises StreamsError."""
        spec = next((one for one in self.node.specs if one.name == name), None)
        if spec is None:
            named = ", ".join(one.name for one in self.node.specs) or "none"
            raise StreamsError(f"{self.node.name} has no store {name!r}; it has: {named}")
        return VIEWS[spec.kind](spec, self.run)

    get_state_store = store

    def schedule(self, every: Any, by: str, call: Callable[[int], Any]) -> Scheduled:
        """Calls `call(timestamp)` again and again: `every` so much time, by `stream_time` or `wall_clock`."""
        if by not in (STREAM_TIME, WALL_CLOCK):
            raise StreamsError(f"{by!r} is neither {STREAM_TIME!r} nor {WALL_CLOCK!r}")
        if by == WALL_CLOCK and not self.node.by_clock:
            raise StreamsError(f"{self.node.name}: calls by the clock need process(..., wall_clock=True)")
        schedule = Scheduled(milliseconds(every), by, call, len(self.scheduled))
        self.scheduled.append(schedule)
        return schedule

    @property
    def now(self) -> int:
        """The clock, in milliseconds since 1970; 0 if neither stores with a ttl nor calls by the clock need it."""
        return self.run.now_ms

    @property
    def stream_time(self) -> int:
        """The latest timestamp of the task's records."""
        return self.run.stream_time

    @property
    def timestamp(self) -> int:
        """The present record's timestamp."""
        return self.time if self.record is None else self.record.timestamp

    @property
    def headers(self) -> Headers:
        """The present record's headers."""
        return () if self.record is None else self.record.headers

    @property
    def place(self) -> Place:
        """Topic, partition and offset of the record that is being processed, where they are known."""
        return self.run.place


@dataclass
class Process(Node):
    """code: makes a Processor, or is a function of record and context. fixed: keys stay as they are."""

    code: Callable[..., Any] = None  # type: ignore[assignment]
    specs: tuple[StoreSpec, ...] = ()
    fixed: bool = False
    by_clock: bool = False

    @property
    def functions(self) -> tuple[Any, ...]:
        return (self.code,)

    def at_work(self, run: Run) -> tuple[Any, Context]:
        """The user's object of this task, and its context."""
        if self.name not in run.working:
            context = Context(run, self)
            user = self.code() if isinstance(self.code, type) else _Function(self.code)
            if not hasattr(user, "process"):
                raise StreamsError(f"{self.name}: {type(user).__name__} has no method process(self, record)")
            user.context = context
            if hasattr(user, "init"):
                user.init(context)
            run.working[self.name] = (user, context)
        work: tuple[Any, Context] = run.working[self.name]
        return work

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        user, context = self.at_work(run)
        context.record = record
        forwarded = user.process(record)
        self._send(context, forwarded)

    def _send(self, context: Context, forwarded: Any) -> None:
        if forwarded is None:
            return
        if isinstance(forwarded, (Record, tuple)):
            forwarded = (forwarded,)
        for one in forwarded:
            if isinstance(one, Record):
                context.forward(one)
            elif self.fixed and not (isinstance(one, tuple) and len(one) == 2):
                context.forward(context.record.key if context.record else None, one)
            elif isinstance(one, tuple) and len(one) == 2:
                context.forward(*one)
            else:
                raise StreamsError(
                    f"{self.name}: it returned {one!r:.60}: neither a Record nor a key and a value"
                )

    def punctuate(self, run: Run, by: str, time: int) -> int | None:
        """Calls what is due; returns when the next call is."""
        _, context = self.at_work(run)
        coming: int | None = None
        for call in context.scheduled:
            if call.by != by or call.cancelled:
                continue
            store, name = self.name + SCHEDULE, [by, call.number]
            at = run.stores.get(store, name)
            if at is None:
                at = 0 if by == STREAM_TIME else time + call.every_ms
            if at <= time:
                context.record, context.time = None, time
                self._send(context, call.call(time))
                at += call.every_ms
                if time >= at:
                    at += ((time - at) // call.every_ms + 1) * call.every_ms
            run.stores.put(store, name, at)
            coming = at if coming is None else min(at, coming)
        return coming


class _Function(Processor[Any, Any]):
    """A function of a record, and of the context if it takes two arguments."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call
        self.takes_context = call.__code__.co_argcount > 1 if hasattr(call, "__code__") else True

    def process(self, record: Record[Any, Any]) -> Any:
        return self.call(record, self.context) if self.takes_context else self.call(record)
