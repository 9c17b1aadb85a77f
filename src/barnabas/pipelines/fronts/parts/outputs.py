"""Reads outputs, and settings of a whole pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.pipelines.entries.document import Item
from barnabas.pipelines.entries.shapes import Either, Group, Named, Number, Several, Shape, Text
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
ENCODED: Final[dict[str, Shape]] = {
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
    found = DEAD_LETTERS.open(item)
    made = DeadLetters(
        found["partitions"].number() if "partitions" in found else 1,
        found["config"].text_map() if "config" in found else {},
        item.where,
    )
    return (_written(found["topic"]) if "topic" in found else default), made


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
    found = item.mapping(OUTPUT.entries)
    given = [name for name in ("topic", *TARGETS) if name in found]
    if len(given) > 1:
        found[given[1]].fail(
            f"{item.what} has {' and '.join(given)}: an output has one destination, so make {len(given)} outputs"
        )
    if not given:
        item.fail(f"{item.what} needs one of topic, {', '.join(sorted(TARGETS))}")
    OUTPUT.check(item)
    topic, target = "", None
    if given[0] == "topic":
        topic = _written(found["topic"])
    else:
        target = Target(given[0], TARGETS[given[0]].check(found[given[0]]))
        for name in ("key", "value", "headers", "timestamp", "route", "partitions", "config"):
            if name in found:
                found[name].fail(f"{name} is for topics, not for {given[0]}")
    schema, present = None, None
    encoded: tuple[str, ...] = ()
    if "value" in found and isinstance(found["value"].value, dict):
        given_value = found["value"].mapping()
        schema, encoded = _encoded(given_value, None if "route" in found else f"{topic}-value")
        present = read_expression(given_value["where"]) if "where" in given_value else None
    key, key_schema = found.get("key"), None
    key_fields: tuple[str, ...] = ()
    if key is not None and isinstance(key.value, dict):
        given_key = key.mapping()
        key_schema, key_fields = _encoded(given_key, None if "route" in found else f"{topic}-key")
        key = given_key.get("then")
    name = read_name(found["name"]) if "name" in found else given[0] if target is not None else topic
    return Output(
        name=name,
        topic=topic,
        key=read_expression(key) if key is not None else None,
        value=read_expression(found["value"]) if "value" in found and not schema else None,
        timestamp=read_expression(found["timestamp"]) if "timestamp" in found else None,
        headers=read_expressions(found["headers"]) if "headers" in found else {},
        operators=read_steps(found["steps"], output=name) if "steps" in found else (),
        aggregate=read_aggregate(found["aggregate"]) if "aggregate" in found else None,
        partitions=found["partitions"].number() if "partitions" in found else -1,
        config=found["config"].text_map() if "config" in found else {},
        options=checked_options(found["options"], SINK_NAMES) if "options" in found else {},
        trigger=found["trigger"].text() if "trigger" in found else None,
        route=_route(found["route"], "aggregate" in found) if "route" in found else None,
        target=target,
        schema=schema,
        encoded=encoded,
        present=present,
        key_schema=key_schema,
        key_fields=key_fields,
        relation=found["from"].text() if "from" in found else "",
        where={"": item.where, **{name: entry.where for name, entry in found.items()}},
    )


def _encoded(given: Mapping[str, Item], subject: str | None) -> tuple[RegistryPlace, tuple[str, ...]]:
    """The schema of a key or value, and the fields that it has. subject: the default; None if there is none. Raises
    PipelineError."""
    fields = tuple(given["fields"].texts()) if "fields" in given else ()
    if "protobuf" in given:
        return RegistryPlace("", "the schema", given["protobuf"].text()), fields
    return read_registry(given["registry"], subject), fields


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
    found = ROUTE.open(item)
    topics = (
        {name: _written(entry) for name, entry in found["topics"].mapping().items()}
        if "topics" in found
        else {}
    )
    return Route(read_expression(found["by"]), topics)
