"""Checks brokers, topics and targets before a pipeline's queries start, and creates missing topics."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from barnabas.client.blocking import BlockingClient, NewTopic
from barnabas.client.errors import BrokerUnavailable, ClientError
from barnabas.client.options import ClientOptions
from barnabas.pipelines.compiler.queries import connection_options, source_settings, takes_replays
from barnabas.pipelines.entries.hiding import hide
from barnabas.pipelines.kinds.targets import TARGETS
from barnabas.pipelines.plan.errors import BrokerAway, PipelineError
from barnabas.pipelines.plan.relations import Scan
from barnabas.pipelines.spark.topics.options import OptionError, client_options, source_options

if TYPE_CHECKING:
    from barnabas.pipelines.plan.pipeline import PipelineSpec

log = logging.getLogger(__name__)
CONTACT_SECONDS: Final = 3.0
Configs = Mapping[str, str | None]
"""The options of a topic."""


def prepare(spec: PipelineSpec, bootstrap: str) -> None:
    """Checks what can be checked before Spark starts: options, targets, brokers, and the topics to be read.

    Creates missing topics that the pipeline writes. Raises PipelineError, and BrokerAway when no broker answers; their
    messages show no secrets of the pipeline.
    """
    try:
        _prepare(spec, bootstrap)
    except PipelineError as error:
        raise type(error)(hide(str(error), spec.secrets)) from None


def _prepare(spec: PipelineSpec, bootstrap: str) -> None:
    try:
        base = client_options(connection_options(spec, bootstrap))
    except OptionError as error:
        raise PipelineError(f"{spec.source.where or spec.where}: {error}") from error
    for source, query in itertools.product(spec.topics_read, spec.queries()):
        try:
            source_options(source_settings(spec, query, bootstrap, source=source))
        except OptionError as error:
            raise PipelineError(f"{source.where or spec.where}: {error}") from error
    for output in spec.outputs:
        if output.target is not None:
            TARGETS[output.target.kind].reach(output.target.options)
    options = ClientOptions(
        base.bootstrap, base.client_id, base.tls, base.sasl, contact_timeout_s=CONTACT_SECONDS
    )
    try:
        with BlockingClient(options) as client:
            read = tuple(dict.fromkeys(topic for source in spec.sources for topic in source.topics))
            known = client.describe(read)
            filled = {topic for source in spec.sources if source.connector for topic in source.topics}
            for topic in read:
                if topic not in known and topic not in filled:
                    raise PipelineError(
                        f"topic {topic} does not exist: create it with `barnabas topic create {topic}`"
                    )
            client.create_topics(new_topics(spec), exist_ok=True)
            changelogs, tables = list(_changelogs(spec)), list(_tables(spec, known))
            topics = dict.fromkeys(topic for topic, _ in (*changelogs, *tables))
            configs = {topic: client.topic_configs(topic) for topic in topics}
            _check_changelogs(changelogs, configs)
            _check_tables(spec.name, tables, configs)
    except BrokerUnavailable as error:
        raise BrokerAway(f"{error}: start a broker with `barnabas start`, or name another with -b") from error
    except ClientError as error:
        raise PipelineError(str(error)) from error


def _changelogs(spec: PipelineSpec) -> Iterator[tuple[str, str]]:
    """The topics that have the newest row of each key, and where in the file each is named."""
    for output in spec.outputs:
        topic, where = (output.topic, "") if output.keeps else (output.changelog, "view")
        if topic:
            yield topic, output.at(where)


def _check_changelogs(changelogs: Iterable[tuple[str, str]], configs: Mapping[str, Configs]) -> None:
    """Raises PipelineError for a changelog topic that would lose the rows of keys that do not change."""
    for topic, where in changelogs:
        policy = configs[topic].get("cleanup.policy") or ""
        if "compact" not in policy or "delete" in policy:
            raise PipelineError(
                f"{where}: the changelog topic {topic} has cleanup.policy={policy}, so it would lose "
                f"the oldest rows: `barnabas config set topic {topic} cleanup.policy=compact`, or name another"
            )


def _tables(spec: PipelineSpec, known: Container[str]) -> Iterator[tuple[str, str]]:
    """The topics that are read as tables, and the name of each table. known: the topics that exist; a connector may create
    others."""
    for relation in spec.plan.relations.values():
        origin = relation.origin
        if isinstance(origin, Scan) and origin.table:
            for topic in filter(known.__contains__, origin.source.topics):
                yield topic, relation.name


def _check_tables(pipeline: str, tables: Iterable[tuple[str, str]], configs: Mapping[str, Configs]) -> None:
    """Logs a warning for each topic of a table that loses old records without regard to their keys."""
    for topic, table in tables:
        limits = (configs[topic].get("retention.ms"), configs[topic].get("retention.bytes"))
        policy = configs[topic].get("cleanup.policy")
        if "delete" in (policy or "") and limits != ("-1", "-1"):
            log.warning(
                "table topic deletes old records",
                extra={
                    "pipeline": pipeline,
                    "table": table,
                    "topic": topic,
                    "cleanup.policy": policy,
                    "consequence": "a table that is read anew will lack the keys of deleted records",
                    "remedy": f"barnabas config set topic {topic} cleanup.policy=compact",
                },
            )


def new_topics(spec: PipelineSpec) -> list[NewTopic]:
    """The topics that the pipeline writes, with the settings to create them."""
    dead = spec.dead_topic
    # Dead letters keep their records' timestamps, so retention by time would delete letters of old records at once.
    configs = {"retention.ms": "-1", **dead.config}
    wanted = {spec.dead_letters: NewTopic(spec.dead_letters, dead.partitions, configs=configs)}
    if any(takes_replays(spec, query) for query in spec.queries()):
        wanted[spec.replays] = NewTopic(spec.replays, 1, configs={"retention.ms": "-1"})
    for output in spec.outputs:
        for topic in output.topics():
            wanted[topic] = NewTopic(topic, output.partitions, configs=output.config)
        if output.changelog:
            wanted[output.changelog] = NewTopic(output.changelog, configs={"cleanup.policy": "compact"})
    return list(wanted.values())
