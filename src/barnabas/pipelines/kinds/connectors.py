"""Connectors in pipeline files, as targets and as what fills the topic of a source.

    outputs: [{connector: {connector.class: JdbcSinkConnector, connection.url: ..., ...}}]
    source: {topic: orders, connector: {connector.class: JdbcSourceConnector, connection.url: ..., ...}}

The configuration is the one that a Connect worker gets with POST /connectors. Connectors are in `barnabas.connect`, which
builds on pipelines; so they are found here by the name of that package when a file has one, as plug-ins are.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from barnabas.pipelines.entries.document import Item
from barnabas.pipelines.entries.shapes import Named, Text

if TYPE_CHECKING:
    import pyarrow as pa

WHERE: Final = "barnabas.connect.in_pipelines"
Config = Mapping[str, str]


class ConfigMistake(Exception):
    """A connector's configuration is wrong. option: which of its options; None for the whole."""

    def __init__(self, message: str, option: str | None = None) -> None:
        super().__init__(message)
        self.option = option


@dataclass(frozen=True, slots=True)
class Sampled:
    """A record as a source connector would write it. number: among those of a preview. timestamp_ms: since 1970."""

    topic: str
    number: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_ms: int


class Feed(Protocol):
    """A source connector that runs in this process and fills a topic."""

    def drain(self) -> None:
        """Writes everything that there is now, then ends. Raises PipelineError."""

    def start(self) -> None:
        """Begins to write, in threads. What fails is started again. Raises PipelineError."""

    def stop(self) -> None:
        """Ends after the transaction in progress."""

    def trouble(self) -> str | None:
        """Why nothing is written at the moment; None if all is well."""


class Connectors(Protocol):
    """What pipelines need of connectors."""

    def check_sink(self, config: Config) -> None:
        """Checks options without asking anybody. Raises ConfigMistake."""

    def check_source(self, config: Config) -> None:
        """Checks options without asking anybody. Raises ConfigMistake."""

    def reach(self, config: Config) -> str | None:
        """Asks the other side of a sink; what is wrong."""

    def deliver(
        self, config: Config, task: Any, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[tuple[pa.RecordBatch, list[Any]]]:
        """See TargetKind; with the Task and Refused of targets. Raises DeliveryError."""

    def sample(self, config: Config, topics: Sequence[str], count: int) -> list[Sampled]:
        """The first records of a source connector for these topics (none: for all); nothing is written. Raises
        PipelineError."""

    def feed(
        self,
        name: str,
        config: Config,
        client: Mapping[str, str],
        topics: Sequence[str],
        *,
        compacted: bool,
        tell: Callable[[str, str], None],
    ) -> Feed:
        """The source connector `name`, which is not started yet. client: properties of the cluster. topics: are created if
        they are missing. tell: receives levels and lines of its journal."""


def connectors() -> Connectors:
    """Raises ImportError if what connectors need is not installed."""
    return cast(Connectors, importlib.import_module(WHERE))


def connector_shape(kind: str) -> Named:
    """The shape of a connector's configuration. kind: for the description."""
    suggested = {"connector.class": "the class of the connector, or its short name"}
    return Named(
        Text(), f"a {kind} connector: its configuration, as for a Connect worker", suggested, guarded=True
    )


def checked_connector(item: Item, check: Callable[[Connectors], Callable[[Config], None]]) -> dict[str, Any]:
    """The configuration in an entry. Raises PipelineError with the line of the option that is wrong."""
    config = item.text_map()
    entries = item.mapping()
    try:
        check(connectors())(config)
    except ConfigMistake as error:
        entry = entries.get(error.option or "", item)
        entry.fail(f"{item.what}: {error}")
    except ImportError as error:
        item.fail(
            f"{item.what} needs connectors, which are not installed ({error}): pip install 'barnabas[connectors]'"
        )
    return config
