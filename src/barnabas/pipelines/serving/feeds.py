"""The source connectors of one pipeline, which fill the topics of its sources while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from barnabas.pipelines.compiler.queries import connection_options
from barnabas.pipelines.kinds.connectors import Feed, connectors
from barnabas.pipelines.plan.pipeline import PipelineSpec
from barnabas.pipelines.plan.relations import Scan

PREFIX: Final = "kafka."
OF_READERS: Final = ("isolation.level",)
Tell = Callable[[str, str], None]


class Feeds:
    """tell: receives levels and lines for the pipeline's log. Methods may be called by any thread."""

    def __init__(self, spec: PipelineSpec, bootstrap: str, tell: Tell) -> None:
        options = connection_options(spec, bootstrap)
        client = {n.removeprefix(PREFIX): v for n, v in options.items() if n.startswith(PREFIX)}
        self._client = {name: value for name, value in client.items() if name not in OF_READERS}
        self._spec, self._tell = spec, tell
        self._feeds: list[Feed] = []
        self._lock = threading.Lock()
        self._stopped = False

    def open(self, *, once: bool) -> None:
        """Starts the connectors; with `once`, returns when all that there is now has been written. Raises PipelineError."""
        for name, relation in self._spec.plan.relations.items():
            origin = relation.origin
            if not isinstance(origin, Scan) or not origin.source.connector:
                continue
            source = origin.source
            feed = connectors().feed(
                f"{self._spec.name}.{name}",
                source.connector,
                self._client,
                source.topics,
                compacted=origin.table,
                tell=self._tell,
            )
            with self._lock:
                if self._stopped:
                    return
                self._feeds.append(feed)
            if once:
                feed.drain()
            else:
                feed.start()

    def close(self) -> None:
        """Stops the connectors, also in the middle of `open`."""
        with self._lock:
            self._stopped, feeds = True, self._feeds
        for feed in feeds:
            feed.stop()

    def trouble(self) -> str | None:
        """Why a connector writes nothing at the moment; None if all are well."""
        return next((text for feed in self._feeds if (text := feed.trouble()) is not None), None)


def has_feeds(spec: PipelineSpec) -> bool:
    """Whether connectors fill topics of a pipeline."""
    return any(source.connector for source in spec.sources)
