"""A connector's configuration, checked and loaded, and how its work is divided into tasks."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from barnabas.connect.connectors import Connector, SourceConnector, SourceContext
from barnabas.connect.errors import ConnectError, OptionError
from barnabas.connect.options import ConfigDef
from barnabas.connect.plugins import SOURCE, Plugin, find_plugin
from barnabas.connect.records import Json
from barnabas.connect.worker.common import EVERY, SINKS, SOURCES
from barnabas.connect.worker.settings import WorkerOptions

PARTITIONS: Final = "barnabas.source.partitions"
"""The option of a task that names its partitions, as JSON. Kafka's connectors take no notice of it."""


def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True)
class Loaded:
    """A connector that can run. texts: its configuration as it was given. config: parsed, with the values of providers."""

    plugin: Plugin
    kind: type[Connector]
    texts: Mapping[str, str]
    config: Mapping[str, Any]
    reconfigure: Callable[[], None] = _nothing

    @property
    def is_source(self) -> bool:
        """Whether it is a source."""
        return self.plugin.kind == SOURCE


def definition_of(plugin: Plugin, kind: type[Connector]) -> ConfigDef:
    """The options of a connector, those that all have first."""
    return EVERY + (SOURCES if plugin.kind == SOURCE else SINKS) + kind.definition()


def load(
    options: WorkerOptions, config: Mapping[str, str], reconfigure: Callable[[], None] = _nothing
) -> Loaded:
    """Raises OptionError."""
    texts = options.expanded(config)
    plugin = find_plugin(str(texts.get("connector.class") or "").strip())
    kind = plugin.load()
    values = definition_of(plugin, kind).parse({n: t for n, t in texts.items() if t is not None})
    if plugin.kind != SOURCE and bool(values["topics"]) == bool(values["topics.regex"]):
        raise OptionError("a sink needs one of topics and topics.regex", "topics")
    return Loaded(plugin, kind, config, values, reconfigure)


def task_configs(loaded: Loaded, name: str, folder: str | None, offsets: Any = None) -> list[dict[str, str]]:
    """The configurations of a connector's tasks; those of sources name their partitions. It may ask the other side.

    Raises ConnectError.
    """
    most = int(loaded.config["tasks.max"])
    base = {name: text for name, text in loaded.texts.items() if text is not None}
    if not loaded.is_source:
        return [dict(base) for _ in range(most)]
    partitions = found_partitions(loaded, name, folder, offsets)
    count = min(most, len(partitions))
    return [{**base, PARTITIONS: _dump(partitions[number::count])} for number in range(count)]


def found_partitions(loaded: Loaded, name: str, folder: str | None, offsets: Any = None) -> list[Json]:
    """What a source says it has. Raises ConnectError."""
    connector = cast(SourceConnector, loaded.kind())
    context = SourceContext(name, 0, threading.Event(), folder=folder)
    if offsets is not None:
        context.offsets = offsets
    try:
        connector.start(loaded.config, context)
        return list(connector.partitions())
    except ConnectError:
        raise
    except Exception as error:
        raise ConnectError(f"{type(error).__name__}: {error}") from error
    finally:
        context.stopping.set()
        connector.stop()


def _dump(partitions: Sequence[Json]) -> str:
    return json.dumps(list(partitions), separators=(",", ":"), sort_keys=True)
