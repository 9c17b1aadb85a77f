"""`App`: a topology with a name, and how it runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from barnabas.pipelines.plan.errors import suggestion
from barnabas.streams.builder import StreamsBuilder
from barnabas.streams.decorating import AppStream, AppTable
from barnabas.streams.durations import Duration
from barnabas.streams.errors import StreamsError
from barnabas.streams.handling import Handler, Handlers
from barnabas.streams.stages import BATCH_MAX, QUERY, pipeline_of
from barnabas.streams.topology import TASKS, Topology

if TYPE_CHECKING:
    from barnabas.pipelines.plan.pipeline import PipelineSpec
    from barnabas.streams.lookups import StoreReader


CHECKPOINTS: Final = "data/checkpoints"
K = TypeVar("K")
V = TypeVar("V")


class App(StreamsBuilder):
    """A StreamsBuilder that can run.

        app = App("word-count", bootstrap="localhost:9092")
        app.stream("lines").flat_map_values(str.split).group_by(lambda k, v: v).count().to_stream().to("counts")
        app.run()

    name: of its consumer group, checkpoints and dead letters (NAME-dead-letters); two apps with one name would be one.
    tasks: how many tasks each stage has; it must stay the same once there is state. start: where topics are read from at
    first, earliest or latest. on_unreadable, on_failed, on_unwritable: what happens to records that cannot be read,
    processed or written, see handling.py. cache: whether aggregates whose results only topics get make one result of a
    key in each micro-batch, as Kafka Streams does with its cache; if not, one for each record. batch_max: how many records
    a micro-batch has at most; all of them are in the memory of the stages' processes. topology: a builder or a topology that
    it runs in place of its own.
    """

    def __init__(
        self,
        name: str,
        *,
        bootstrap: str | None = None,
        tasks: int = TASKS,
        start: str = "earliest",
        dead_letters: str | None = None,
        topology: StreamsBuilder | Topology | None = None,
        on_unreadable: Handler = "dead_letter",
        on_failed: Handler = "dead_letter",
        on_unwritable: Handler = "dead_letter",
        cache: bool = True,
        batch_max: int = BATCH_MAX,
    ) -> None:
        super().__init__()
        if not name:
            raise StreamsError("an App needs a name")
        self.name = name
        self.bootstrap, self.tasks, self.start, self.dead_letters = bootstrap, tasks, start, dead_letters
        if batch_max < 1:
            raise StreamsError(f"batch_max is {batch_max}; a micro-batch has at least 1 record")
        self.batch_max = batch_max
        self._topology = topology
        self.cache = cache
        self.handlers = Handlers(on_unreadable, on_failed, on_unwritable)

    @overload
    def stream(self, *topics: str, key: type[K], value: type[V]) -> AppStream[K, V]: ...
    @overload
    def stream(self, *topics: str, value: type[V]) -> AppStream[str, V]: ...
    @overload
    def stream(self, *topics: str) -> AppStream[str, str]: ...
    @overload
    def stream(
        self, *topics: str | Iterable[str], key: Any = ..., value: Any = ...
    ) -> AppStream[Any, Any]: ...
    def stream(self, *topics: Any, key: Any = None, value: Any = None) -> AppStream[Any, Any]:
        """The records of one or more topics; also a decorator, see decorating.py."""
        stream = super().stream(*topics, key=key, value=value)
        return AppStream(self._graph, stream._node)

    @overload
    def table(
        self, topic: str, *, key: type[K], value: type[V], name: str | None = ...
    ) -> AppTable[K, V]: ...
    @overload
    def table(self, topic: str, *, value: type[V], name: str | None = ...) -> AppTable[str, V]: ...
    @overload
    def table(self, topic: str, *, name: str | None = ...) -> AppTable[str, str]: ...
    @overload
    def table(
        self,
        topic: str,
        *,
        key: Any = ...,
        value: Any = ...,
        name: str | None = ...,
        versioned: Duration | None = ...,
    ) -> AppTable[Any, Any]: ...
    def table(
        self,
        topic: str,
        *,
        key: Any = None,
        value: Any = None,
        name: str | None = None,
        versioned: Duration | None = None,
    ) -> AppTable[Any, Any]:
        """The newest record of each key of a topic; also a decorator, see decorating.py."""
        table = super().table(topic, key=key, value=value, name=name, versioned=versioned)
        return AppTable(self._graph, table._node)

    @property
    def topology(self) -> Topology:
        """What it runs. Raises StreamsError."""
        topology = self._topology
        if not isinstance(topology, Topology):
            topology = super().build(self.tasks) if topology is None else topology.build(self.tasks)
        cached = topology.cached if self.cache else frozenset()
        return replace(topology, handlers=self.handlers, cached=cached)

    def build(self, tasks: int | None = None) -> Topology:
        """What it runs, for the test driver. Raises StreamsError."""
        return self.topology if tasks is None else replace(self.topology, tasks=tasks)

    def spec(self, name: str | None = None) -> PipelineSpec:
        """The pipeline that it is on Spark. name: in place of its own. Raises StreamsError and PipelineError."""
        spec = pipeline_of(
            self.topology,
            name or self.name,
            start=self.start,
            dead_letters=self.dead_letters,
            batch_max=self.batch_max,
        )
        return replace(spec, bootstrap=self.bootstrap)

    def store(self, name: str, *, checkpoint_dir: Path | str | None = None) -> StoreReader:
        """What a table or store with this name has now: `app.store("counts").get("be")`. From any process of the machine on
        which the app runs, or ran. checkpoint_dir: as of `run`. Raises StreamsError if there is no such store."""
        from barnabas.pipelines.views.stores import store_file
        from barnabas.streams.lookups import StoreReader

        topology = self.topology
        if name not in topology.named:
            near = suggestion(name, topology.named) if topology.named else "none has a name"
            raise StreamsError(f"the app {self.name} has no store {name!r}: give a table a name; {near}")
        where = str(checkpoint_dir or CHECKPOINTS)
        if "://" in where and not where.startswith("file:"):
            raise StreamsError(
                f"the checkpoints {checkpoint_dir} are not on this machine: ask the app by HTTP (barnabas streams get)"
            )
        place = Path(where.removeprefix("file://")) / self.name / QUERY
        return StoreReader(name, store_file(place, name), topology.classes)

    def run(self, **settings: Any) -> Any:
        """Runs it on Spark until Ctrl-C or SIGTERM, or with once=True until all present records are processed. settings:
        bootstrap, checkpoint_dir, master, conf, progress, as of a pipeline. Returns a report. Raises StreamsError and
        PipelineError."""
        from barnabas.pipelines.serving.run import run_pipeline

        return run_pipeline(self.spec(), **{"bootstrap": self.bootstrap, **settings})
