"""Checks the configurations of connectors in pipeline files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from barnabas.connect.connectors import SinkConnector
from barnabas.connect.errors import ConnectError, OptionError
from barnabas.connect.plugins import SINK, SOURCE, find_plugin
from barnabas.connect.transforms.chain import make_chain
from barnabas.connect.worker.planning import Loaded, load
from barnabas.connect.worker.settings import WorkerOptions
from barnabas.pipelines.kinds.connectors import ConfigMistake

STRING: Final = "org.apache.kafka.connect.storage.StringConverter"
CLASS: Final = "connector.class"
TOPICS: Final = "topics"
OWN_NAME: Final = "pipeline"
OWN_TOPIC: Final = "records"
"""Stands for the records' own topics in the configuration of a sink that names none."""


def sink_options() -> WorkerOptions:
    """Of the worker that a sink does not have: its keys are texts."""
    return WorkerOptions.of({}, {"key.converter": STRING})


def loaded_sink(config: Mapping[str, str]) -> Loaded:
    """Raises OptionError."""
    if "topics.regex" in config:
        raise OptionError(
            "the records are those of the pipeline: topics names the topic that the connector sees",
            "topics.regex",
        )
    if "value.converter" in config:
        raise OptionError(
            "values are the fields of the pipeline, and nothing converts them: leave it out",
            "value.converter",
        )
    loaded = load(sink_options(), {"name": OWN_NAME, TOPICS: OWN_TOPIC, **config})
    if len(loaded.config[TOPICS]) > 1:
        raise OptionError("topics names the one topic that the connector sees", TOPICS)
    return loaded


def check_sink(config: Mapping[str, str]) -> None:
    """See `Connectors`."""
    try:
        _require(
            config,
            SINK,
            "a source connector: it fills the topic of a source (source: {topic: ..., connector: ...})",
        )
        loaded = loaded_sink(config)
        make_chain(loaded.config)
    except OptionError as error:
        raise ConfigMistake(str(error), error.option or None) from None
    reason = cast(type[SinkConnector], loaded.kind).not_in_pipelines
    if reason:
        raise ConfigMistake(
            f"{config[CLASS]} {reason}: use the target files, which writes Delta tables, JSON, CSV, Parquet and ORC, also "
            "to s3a://...",
            CLASS,
        )


def check_source(config: Mapping[str, str]) -> None:
    """See `Connectors`."""
    try:
        _require(
            config, SOURCE, "a sink connector: it is the target of an output (outputs: [{connector: ...}])"
        )
        loaded = load(WorkerOptions.of({}, {}), {"name": OWN_NAME, **config})
        make_chain(loaded.config)
    except OptionError as error:
        raise ConfigMistake(str(error), error.option or None) from None


def _require(config: Mapping[str, str], kind: str, other: str) -> None:
    """Raises OptionError."""
    name = str(config.get(CLASS) or "").strip()
    if not name:
        raise OptionError(f"{CLASS} is missing: it names the connector", CLASS)
    if find_plugin(name).kind != kind:
        raise OptionError(f"{name} is {other}", CLASS)


def reach(config: Mapping[str, str]) -> str | None:
    """See `Connectors`."""
    try:
        loaded = loaded_sink(config)
        wrong = loaded.kind.check(loaded.config)
    except (OptionError, ConnectError) as error:
        return str(error)
    for name, complaints in wrong.items():
        return f"{name}: {complaints if isinstance(complaints, str) else '; '.join(complaints)}"
    return None
