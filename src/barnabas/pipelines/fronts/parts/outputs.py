"""Reads outputs, and settings of a whole pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.pipelines.entries.document import Item
from barnabas.pipelines.entries.shapes import Either, EntryShape, Group, Named, Number, Several, Text
from barnabas.pipelines.fronts.parts.common import (
    AGGREGATE,
    REGISTRY,
    SQL,
    STEP_LIST,
    TRIGGER,
    read_aggregate,
    read_name,
    read_registry,
    read_steps,
)
from barnabas.pipelines.kinds.sources.topics import checked_options, option_names, topic_name
from barnabas.pipelines.kinds.steps.fields import read_expression, read_expressions
from barnabas.pipelines.kinds.targets import TARGETS
from barnabas.pipelines.kinds.targets.files import FORMATS
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.plan.operators import RegistryPlace
from barnabas.pipelines.plan.outputs import DeadLetters, Output, Route, Target
from barnabas.pipelines.spark.topics.options import SINK_NAMES
from barnabas.pipelines.spark.topics.refusing import INTERNAL

CONFIG: Final = Named(Text(), "config of the topic, if it is created")
DEAD_LETTERS: Final = Group(
    {
        "topic": Text("default <pipeline>-dead-letters"),
        "partitions": Number("the topic's number of partitions, if it is created; default 1"),
        "config": CONFIG,
    }
)
ROUTE: Final = Group(
    {
        "by": SQL,
        "topics": Named(Text("a topic"), "values and their topics; default: the value is the topic's name"),
    },
    "sends records to other topics than the output's own",
    required=("by",),
)
ENCODED: Final[dict[str, EntryShape]] = {
    "registry": REGISTRY,
    "protobuf": Text("a schema in Protobuf, whose first message is written; nothing in the bytes names it"),
    "fields": Several(Text("a field"), "the fields that are encoded; default all"),
}
VALUE: Final = Either(
    (
        Text("Spark SQL"),
        Group(
            {
                **ENCODED,
                "where": SQL,
            },
            "fields, encoded with a schema; rows for which `where` is not true have no value",
            one_of=("registry", "protobuf"),
        ),
    ),
    "Spark SQL; default a JSON object of all fields",
)
KEY: Final = Either(
    (
        Text("Spark SQL"),
        Group(
            {
                **ENCODED,
                "then": SQL,
            },
            "fields, encoded with a schema; `then` gives bytes that follow",
            one_of=("registry", "protobuf"),
        ),
    ),
    "Spark SQL; default the key of the record that was read",
)
OUTPUT: Final = Group(
    {
        "name": Text("the name of the query and its checkpoint; default the topic or the kind of target"),
        "from": Text("the source or relation whose rows are written, if there are several"),
        "topic": Text("created if it does not exist"),
        "route": ROUTE,
        "key": KEY,
        "value": VALUE,
        "headers": Named(SQL, "headers and their values"),
        "timestamp": SQL,
        "steps": STEP_LIST,
        "aggregate": AGGREGATE,
        "partitions": Number("the topic's number of partitions, if it is created"),
        "config": CONFIG,
        "options": option_names(SINK_NAMES),
        "trigger": TRIGGER,
        **{name: kind.shape for name, kind in TARGETS.items()},
    },
    one_of=("topic", *TARGETS),
)


def read_dead_letters(item: Item, default: str) -> tuple[str, DeadLetters]:
    """The dead-letter topic's name, and the settings to create it. item: a name, or a group."""
    if not isinstance(item.value, dict):
        return _written(item), DeadLetters(where=item.where)
    entries = DEAD_LETTERS.open(item)
    dead_letters = DeadLetters(
        entries["partitions"].number() if "partitions" in entries else 1,
        entries["config"].text_map() if "config" in entries else {},
        item.where,
    )
    return (_written(entries["topic"]) if "topic" in entries else default), dead_letters


def _written(item: Item) -> str:
    """The name of a topic that the pipeline writes. Raises PipelineError."""
    name = topic_name(item)
    if name in INTERNAL:
        item.fail(f"{item.what} is {name!r}, which belongs to the brokers: nothing else may write to it")
    return name


def read_output(item: Item) -> Output:
    """An output, without its relation if the entry does not name it. Raises PipelineError."""
    for name, entry in item.mapping().items():
        if name.lower() in FORMATS:
            entry.fail(
                f"{item.what} has no entry {name!r}; that is a format of files: write "
                f"files: {{path: ..., format: {name.lower()}}}"
            )
    entries = item.mapping(OUTPUT.entries)
    destinations = [name for name in ("topic", *TARGETS) if name in entries]
    if len(destinations) > 1:
        entries[destinations[1]].fail(
            f"{item.what} has {' and '.join(destinations)}: "
            f"an output has one destination, so make {len(destinations)} outputs"
        )
    if not destinations:
        item.fail(f"{item.what} needs one of topic, {', '.join(sorted(TARGETS))}")
    OUTPUT.check(item)
    topic, target = "", None
    if destinations[0] == "topic":
        topic = _written(entries["topic"])
    else:
        target = Target(destinations[0], TARGETS[destinations[0]].check(entries[destinations[0]]))
        for name in ("key", "value", "headers", "timestamp", "route", "partitions", "config"):
            if name in entries:
                entries[name].fail(f"{name} is for topics, not for {destinations[0]}")
    schema, present = None, None
    encoded: tuple[str, ...] = ()
    if "value" in entries and isinstance(entries["value"].value, dict):
        given_value = entries["value"].mapping()
        schema, encoded = _encoded(given_value, None if "route" in entries else f"{topic}-value")
        present = read_expression(given_value["where"]) if "where" in given_value else None
    key, key_schema = entries.get("key"), None
    key_fields: tuple[str, ...] = ()
    if key is not None and isinstance(key.value, dict):
        given_key = key.mapping()
        key_schema, key_fields = _encoded(given_key, None if "route" in entries else f"{topic}-key")
        key = given_key.get("then")
    name = (
        read_name(entries["name"]) if "name" in entries else destinations[0] if target is not None else topic
    )
    return Output(
        name=name,
        topic=topic,
        key=read_expression(key) if key is not None else None,
        value=read_expression(entries["value"]) if "value" in entries and not schema else None,
        timestamp=read_expression(entries["timestamp"]) if "timestamp" in entries else None,
        headers=read_expressions(entries["headers"]) if "headers" in entries else {},
        operators=read_steps(entries["steps"], output=name) if "steps" in entries else (),
        aggregate=read_aggregate(entries["aggregate"]) if "aggregate" in entries else None,
        partitions=entries["partitions"].number() if "partitions" in entries else -1,
        config=entries["config"].text_map() if "config" in entries else {},
        options=checked_options(entries["options"], SINK_NAMES) if "options" in entries else {},
        trigger=entries["trigger"].text() if "trigger" in entries else None,
        route=_route(entries["route"], "aggregate" in entries) if "route" in entries else None,
        target=target,
        schema=schema,
        encoded=encoded,
        present=present,
        key_schema=key_schema,
        key_fields=key_fields,
        relation=entries["from"].text() if "from" in entries else "",
        where={"": item.where, **{name: entry.where for name, entry in entries.items()}},
    )


def _encoded(entries: Mapping[str, Item], subject: str | None) -> tuple[RegistryPlace, tuple[str, ...]]:
    """The schema of a key or value, and the fields that it has. subject: the default; None if there is none. Raises
    PipelineError."""
    fields = tuple(entries["fields"].texts()) if "fields" in entries else ()
    if "protobuf" in entries:
        return RegistryPlace.of_text(entries["protobuf"].text()), fields
    return read_registry(entries["registry"], subject), fields


def refuse_from(outputs: Iterable[Output]) -> None:
    """Raises PipelineError if an output names a relation, in a pipeline that has none with a name."""
    for output in outputs:
        if output.relation:
            raise PipelineError(
                f"{output.at('from')}: from needs sources and relations: this pipeline has one source"
            )


def _route(item: Item, aggregate: bool) -> Route:
    if aggregate:
        item.fail("an aggregate cannot be routed: use two outputs")
    entries = ROUTE.open(item)
    topics = (
        {name: _written(entry) for name, entry in entries["topics"].mapping().items()}
        if "topics" in entries
        else {}
    )
    return Route(read_expression(entries["by"]), topics)
