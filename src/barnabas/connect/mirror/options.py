"""The options of the three connectors, as data. Source: Kafka's MirrorConnectorConfig, MirrorSourceConfig,
MirrorCheckpointConfig, MirrorHeartbeatConfig."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

from barnabas.client.patterns import PatternError, java_pattern
from barnabas.connect.mirror.naming import GROUPS_EXCLUDED, OPTIONS_EXCLUDED, TOPICS_EXCLUDED
from barnabas.connect.options import ConnectorOption, Importance, Type, not_empty

PACKAGE: Final = "org.apache.kafka.connect.mirror"
BYTES: Final = "org.apache.kafka.connect.converters.ByteArrayConverter"
DEFAULT_POLICY: Final = f"{PACKAGE}.DefaultReplicationPolicy"
IDENTITY_POLICY: Final = f"{PACKAGE}.IdentityReplicationPolicy"
AGES_S: Final = {"m": 60, "h": 3600, "d": 86_400}
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


def _patterns(value: list[Any]) -> str | None:
    """A rule: regular expressions of Java."""
    try:
        for text in value:
            java_pattern(str(text))
    except PatternError as error:
        return str(error)
    return None


def _start(value: str) -> str | None:
    return (
        None
        if not value or start_ms(value, 0) is not None
        else "Not a time; use 2024-01-31, 2024-01-31T12:00 or 7d"
    )


def start_ms(text: str, now_ms: int) -> int | None:
    """The time that `start.from` names, in milliseconds since 1970; None if it is no time."""
    text = text.strip()
    if text.isdigit():
        return int(text)
    if text[:-1].isdigit() and text[-1] in AGES_S:
        return now_ms - int(text[:-1]) * AGES_S[text[-1]] * 1000
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp() * 1000)


def _only(*names: str) -> Any:
    """A rule: one of these classes. There is no way to load Java's."""

    def check(value: str) -> str | None:
        if value in names:
            return None
        return f"classes of Java cannot be loaded here; there {'are' if len(names) > 1 else 'is'} {' and '.join(names)}"

    return check


def _seconds(name: str, default: int, doc: str) -> ConnectorOption:
    return ConnectorOption(name, Type.LONG, default, LOW, doc, lo=0)


def _flag(name: str, default: bool, doc: str, importance: Importance = LOW) -> ConnectorOption:
    return ConnectorOption(name, Type.BOOLEAN, default, importance, doc)


def _replication(name: str, default: int, doc: str) -> ConnectorOption:
    return ConnectorOption(
        name, Type.SHORT, default, LOW, f"{doc} Fewer if the cluster has fewer brokers.", lo=-1
    )


EVERY: Final = (
    ConnectorOption("source.cluster.alias", importance=HIGH, doc="Alias of source cluster", check=not_empty),
    ConnectorOption(
        "target.cluster.alias",
        default="target",
        importance=HIGH,
        doc="Alias of target cluster. Used in metrics reporting.",
        check=not_empty,
    ),
    ConnectorOption(
        "source.cluster.bootstrap.servers",
        default="",
        importance=HIGH,
        doc="Brokers of the source. Its clients have source.cluster.*, source.consumer.* and source.admin.* besides.",
    ),
    ConnectorOption(
        "target.cluster.bootstrap.servers",
        default="",
        importance=HIGH,
        doc=(
            "Brokers of the target, which is the worker's cluster. Other properties are target.cluster.*, "
            "target.producer.* and target.admin.*."
        ),
    ),
    ConnectorOption(
        "replication.policy.class",
        default=DEFAULT_POLICY,
        importance=LOW,
        doc="Class which defines the remote topic naming convention.",
        check=_only(DEFAULT_POLICY, IDENTITY_POLICY),
    ),
    ConnectorOption(
        "replication.policy.separator",
        default=".",
        importance=LOW,
        doc="Separator used in remote topic naming convention.",
        check=not_empty,
    ),
    _flag(
        "replication.policy.internal.topic.separator.enabled",
        True,
        "Whether to use replication.policy.separator in the names of internal topics as well.",
    ),
    _flag("enabled", True, "Whether to replicate source->target."),
    ConnectorOption("key.converter", Type.CLASS, BYTES, LOW, "Records are copied as bytes."),
    ConnectorOption("value.converter", Type.CLASS, BYTES, LOW, "Records are copied as bytes."),
    ConnectorOption("header.converter", Type.CLASS, BYTES, LOW, "Headers are copied as bytes."),
)
_TOPICS: Final = (
    ConnectorOption(
        "topics",
        Type.LIST,
        ".*",
        HIGH,
        "Topics to replicate. Supports comma-separated topic names and regexes.",
        check=_patterns,
    ),
    ConnectorOption(
        "topics.exclude",
        Type.LIST,
        TOPICS_EXCLUDED,
        HIGH,
        "Excluded topics. Supports comma-separated topic names and regexes. Excludes take precedence over includes.",
        check=_patterns,
    ),
    ConnectorOption(
        "topics.blacklist", Type.LIST, "", LOW, "The former name of topics.exclude.", check=_patterns
    ),
    ConnectorOption(
        "topic.filter.class",
        default=f"{PACKAGE}.DefaultTopicFilter",
        importance=LOW,
        doc="Selects the topics.",
        check=_only(f"{PACKAGE}.DefaultTopicFilter"),
    ),
)
_GROUPS: Final = (
    ConnectorOption(
        "groups",
        Type.LIST,
        ".*",
        HIGH,
        "Consumer groups to replicate. Supports comma-separated group IDs and regexes.",
        check=_patterns,
    ),
    ConnectorOption(
        "groups.exclude", Type.LIST, GROUPS_EXCLUDED, HIGH, "Groups to leave out.", check=_patterns
    ),
    ConnectorOption(
        "groups.blacklist", Type.LIST, "", LOW, "The former name of groups.exclude.", check=_patterns
    ),
    ConnectorOption(
        "group.filter.class",
        default=f"{PACKAGE}.DefaultGroupFilter",
        importance=LOW,
        doc="Selects the groups.",
        check=_only(f"{PACKAGE}.DefaultGroupFilter"),
    ),
)
_SYNCS: Final = (
    ConnectorOption(
        "offset-syncs.topic.location",
        default="source",
        importance=LOW,
        doc="The location (source/target) of the offset-syncs topic.",
        choices=("source", "target"),
    ),
    _replication("offset-syncs.topic.replication.factor", 3, "Replicas of the offset-syncs topic."),
    _flag("emit.offset-syncs.enabled", True, "Whether to store the new topic's offsets of copied records."),
)
SOURCE: Final = (
    *EVERY,
    *_TOPICS,
    *_SYNCS,
    _replication("replication.factor", 2, "Replicas of newly created remote topics."),
    _flag("refresh.topics.enabled", True, "Whether to periodically check for new topics and partitions."),
    _seconds("refresh.topics.interval.seconds", 600, "Frequency of topic refresh."),
    _flag("sync.topic.configs.enabled", True, "Whether to keep options of remote topics as in the source."),
    _seconds("sync.topic.configs.interval.seconds", 600, "Frequency of topic config sync."),
    _flag("sync.topic.acls.enabled", True, "Whether to copy access rules of topics, except those to write."),
    _seconds("sync.topic.acls.interval.seconds", 600, "Frequency of topic ACL sync."),
    ConnectorOption(
        "config.properties.exclude",
        Type.LIST,
        OPTIONS_EXCLUDED,
        HIGH,
        "Topic options that are not copied. Supports comma-separated names and regexes.",
        check=_patterns,
    ),
    ConnectorOption(
        "config.properties.blacklist",
        Type.LIST,
        "",
        LOW,
        "The former name of config.properties.exclude.",
        check=_patterns,
    ),
    ConnectorOption(
        "use.defaults.from",
        default="target",
        importance=LOW,
        doc="Which cluster's defaults a remote topic has for options that the source's topic does not set.",
        choices=("source", "target"),
    ),
    ConnectorOption(
        "offset.lag.max",
        Type.LONG,
        100,
        LOW,
        "How many records may be copied without an offset sync.",
        lo=0,
    ),
    ConnectorOption(
        "consumer.poll.timeout.ms", Type.LONG, 1000, LOW, "How long a poll of the source may wait.", lo=0
    ),
    _flag("heartbeats.replication.enabled", True, "Whether to copy heartbeats topics, whatever topics says."),
    ConnectorOption(
        "start.from",
        default="",
        importance=LOW,
        doc=(
            "Barnabas's own: partitions of which nothing was copied yet begin at the first record since this time: an ISO "
            "date or time (UTC if it names no zone), milliseconds since 1970, or an age such as 7d or 12h. Empty: at the "
            "beginning."
        ),
        check=_start,
    ),
    ConnectorOption(
        "partitions",
        default="keep",
        importance=LOW,
        doc=(
            "Barnabas's own: 'keep' copies each record into the partition of the same number; 'hash' lets its key choose, "
            "so that the copy may have another number of partitions. Offsets of groups are only translated with 'keep'."
        ),
        choices=("keep", "hash"),
    ),
    *(
        ConnectorOption(
            f"source.{part}.converter",
            Type.CLASS,
            None,
            LOW,
            f"Barnabas's own: reads {part}s with this converter (its options follow after a dot), so that transforms see "
            f"their fields; {part}.converter writes them. Without it they are bytes.",
        )
        for part in ("key", "value")
    ),
    _flag(
        "provenance.headers.enabled",
        False,
        "Barnabas's own: each copied record gets a header that says where it comes from, and records that have been in "
        "the target before are not copied back, whatever topics are called.",
    ),
)
CHECKPOINT: Final = (
    *EVERY,
    *_TOPICS,
    *_GROUPS,
    *_SYNCS,
    _flag("emit.checkpoints.enabled", True, "Whether to replicate consumer offsets to target cluster."),
    _seconds("emit.checkpoints.interval.seconds", 60, "Frequency of checkpoints."),
    _replication("checkpoints.topic.replication.factor", 3, "Replicas of the checkpoints topic."),
    _flag("refresh.groups.enabled", True, "Whether to periodically check for new consumer groups."),
    _seconds("refresh.groups.interval.seconds", 600, "Frequency of group refresh."),
    _flag(
        "sync.group.offsets.enabled",
        False,
        "Whether to write the translated offsets to the groups of the target, as long as they have no members there.",
    ),
    _seconds("sync.group.offsets.interval.seconds", 60, "Frequency of consumer group offset sync."),
)
HEARTBEAT: Final = (
    *EVERY,
    _flag("emit.heartbeats.enabled", True, "Whether to emit heartbeats to target cluster."),
    _seconds("emit.heartbeats.interval.seconds", 1, "Frequency of heartbeats."),
    _replication("heartbeats.topic.replication.factor", 3, "Replicas of the heartbeats topic."),
)
