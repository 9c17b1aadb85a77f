"""The options that every connector has besides its own, and that of sources and sinks. Source: Kafka's ConnectorConfig,
SourceConnectorConfig, SinkConnectorConfig."""

from __future__ import annotations

import re
from typing import Any, Final

from barnabas.connect.converters.finding import CLASSES, HEADER_CLASSES
from barnabas.connect.options import ConfigDef, ConnectorOption, Importance, Type, Width, is_regex

COMMON, TRANSFORMS, PREDICATES, ERRORS = "Common", "Transforms", "Predicates", "Error Handling"
CREATION, EXACTLY_ONCE = "Topic Creation", "Exactly Once Support"
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


def _name(value: str) -> str | None:
    if not value.strip():
        return "String may not be empty"
    if re.search(r"[\x00-\x1f\x7f]", value):
        return "String may not contain control sequences"
    return None


def _unique(value: list[Any]) -> str | None:
    return "Duplicate alias provided." if len(set(value)) < len(value) else None


_CONNECTOR_CLASS_DOC = (
    "Name or alias of the class for this connector: a full class name, or the simple one "
    "with or without `Connector`."
)
EVERY: Final = ConfigDef(
    (
        ConnectorOption(
            "name",
            importance=HIGH,
            doc="Globally unique name to use for this connector.",
            check=_name,
            group=COMMON,
            width=Width.MEDIUM,
            display_name="Connector name",
        ),
        ConnectorOption(
            "connector.class",
            importance=HIGH,
            doc=_CONNECTOR_CLASS_DOC,
            group=COMMON,
            width=Width.LONG,
            display_name="Connector class",
        ),
        ConnectorOption(
            "connector.plugin.version",
            default=None,
            importance=MEDIUM,
            doc="Accepted; there is one version of each connector.",
            group=COMMON,
            width=Width.SHORT,
        ),
        ConnectorOption(
            "tasks.max",
            Type.INT,
            1,
            HIGH,
            "Maximum number of tasks to use for this connector.",
            lo=1,
            group=COMMON,
            width=Width.SHORT,
            display_name="Tasks max",
        ),
        ConnectorOption(
            "tasks.max.enforce",
            Type.BOOLEAN,
            True,
            LOW,
            "Accepted; there are never more tasks than tasks.max.",
            group=COMMON,
            width=Width.SHORT,
            display_name="Enforce tasks max",
        ),
        ConnectorOption(
            "key.converter",
            Type.CLASS,
            None,
            LOW,
            "Converter class of keys; that of the worker if there is none.",
            group=COMMON,
            width=Width.SHORT,
            display_name="Key converter class",
            recommended=lambda values: sorted(CLASSES),
        ),
        ConnectorOption(
            "key.converter.plugin.version",
            default=None,
            importance=MEDIUM,
            doc="Accepted; there is one version of each converter.",
            group=COMMON,
            width=Width.SHORT,
        ),
        ConnectorOption(
            "value.converter",
            Type.CLASS,
            None,
            LOW,
            "Converter class of values; that of the worker if there is none.",
            group=COMMON,
            width=Width.SHORT,
            display_name="Value converter class",
            recommended=lambda values: sorted(CLASSES),
        ),
        ConnectorOption(
            "value.converter.plugin.version",
            default=None,
            importance=MEDIUM,
            doc="Accepted; there is one version of each converter.",
            group=COMMON,
            width=Width.SHORT,
        ),
        ConnectorOption(
            "header.converter",
            Type.CLASS,
            None,
            LOW,
            "Converter class of headers; that of the worker if there is none.",
            group=COMMON,
            width=Width.SHORT,
            display_name="Header converter class",
            recommended=lambda values: sorted({*CLASSES, *HEADER_CLASSES}),
        ),
        ConnectorOption(
            "header.converter.plugin.version",
            default=None,
            importance=MEDIUM,
            doc="Accepted; there is one version of each converter.",
            group=COMMON,
            width=Width.SHORT,
        ),
        ConnectorOption(
            "transforms",
            Type.LIST,
            "",
            LOW,
            "Aliases for the transformations to be applied to records.",
            check=_unique,
            group=TRANSFORMS,
            width=Width.LONG,
            display_name="Transforms",
        ),
        ConnectorOption(
            "predicates",
            Type.LIST,
            "",
            LOW,
            "Aliases for the predicates used by transformations.",
            check=_unique,
            group=PREDICATES,
            width=Width.LONG,
            display_name="Predicates",
        ),
        ConnectorOption(
            "config.action.reload",
            default="restart",
            importance=LOW,
            doc="Accepted; values of config providers are read when a task starts.",
            choices=("none", "restart"),
            group=COMMON,
            width=Width.MEDIUM,
            display_name="Reload Action",
        ),
        ConnectorOption(
            "errors.retry.timeout",
            Type.LONG,
            0,
            MEDIUM,
            (
                "The maximum duration in milliseconds that a failed operation will be reattempted. "
                "The default is 0, which means no retries will be attempted. Use -1 for infinite "
                "retries."
            ),
            group=ERRORS,
            width=Width.MEDIUM,
            display_name="Retry Timeout for Errors",
        ),
        ConnectorOption(
            "errors.retry.delay.max.ms",
            Type.LONG,
            60000,
            MEDIUM,
            "The maximum duration in milliseconds between consecutive retry attempts.",
            group=ERRORS,
            width=Width.MEDIUM,
            display_name="Maximum Delay Between Retries for Errors",
        ),
        ConnectorOption(
            "errors.tolerance",
            default="none",
            importance=MEDIUM,
            doc=(
                "Behavior for tolerating errors during connector operation. 'none' signals that any "
                "error will result in an immediate connector task failure; 'all' skips over "
                "problematic records."
            ),
            choices=("none", "all"),
            group=ERRORS,
            width=Width.SHORT,
            display_name="Error Tolerance",
        ),
        ConnectorOption(
            "errors.log.enable",
            Type.BOOLEAN,
            False,
            MEDIUM,
            "If true, write each error and the details of the failed operation to the log.",
            group=ERRORS,
            width=Width.SHORT,
            display_name="Log Errors",
        ),
        ConnectorOption(
            "errors.log.include.messages",
            Type.BOOLEAN,
            False,
            MEDIUM,
            "Whether to include in the log the record that resulted in a failure.",
            group=ERRORS,
            width=Width.SHORT,
            display_name="Log Error Details",
        ),
        ConnectorOption(
            "errors.deadletterqueue.topic.name",
            default="",
            importance=MEDIUM,
            doc=(
                "The topic of records that cause errors while errors.tolerance is all; none if it is "
                "empty. Sources have one as well."
            ),
            group=ERRORS,
            width=Width.MEDIUM,
            display_name="Dead Letter Queue Topic Name",
        ),
        ConnectorOption(
            "errors.deadletterqueue.topic.replication.factor",
            Type.SHORT,
            3,
            MEDIUM,
            (
                "Replication factor used to create the dead letter queue topic when it doesn't "
                "already exist; fewer if there are fewer brokers."
            ),
            group=ERRORS,
            width=Width.MEDIUM,
            display_name="Dead Letter Queue Topic Replication Factor",
        ),
        ConnectorOption(
            "errors.deadletterqueue.context.headers.enable",
            Type.BOOLEAN,
            False,
            MEDIUM,
            "If true, headers that begin with __connect.errors. say what failed where.",
            group=ERRORS,
            width=Width.MEDIUM,
            display_name="Enable Error Context Headers",
        ),
    )
)
SOURCES: Final = ConfigDef(
    (
        ConnectorOption(
            "topic.creation.groups",
            Type.LIST,
            "",
            LOW,
            "Groups of configurations for topics created by source connectors",
            check=_unique,
            group=CREATION,
            width=Width.LONG,
            display_name="Topic Creation Groups",
        ),
        ConnectorOption(
            "exactly.once.support",
            default="requested",
            importance=MEDIUM,
            doc='If set to "required", refuses a connector that cannot provide exactly-once semantics.',
            choices=("requested", "required"),
            group=EXACTLY_ONCE,
            width=Width.SHORT,
            display_name="Exactly once support",
        ),
        ConnectorOption(
            "transaction.boundary",
            default="poll",
            importance=MEDIUM,
            doc=(
                "'poll': a transaction for each batch that the connector returns; 'interval': one for "
                "all batches of transaction.boundary.interval.ms. 'connector' is what no connector here defines."
            ),
            choices=("poll", "interval", "connector"),
            group=EXACTLY_ONCE,
            width=Width.SHORT,
            display_name="Transaction Boundary",
        ),
        ConnectorOption(
            "transaction.boundary.interval.ms",
            Type.LONG,
            None,
            LOW,
            "The length of transactions of 'interval'; empty: offset.flush.interval.ms of the worker.",
            lo=0,
            hi=840_000,
            group=EXACTLY_ONCE,
            width=Width.SHORT,
            display_name="Transaction boundary interval",
        ),
        ConnectorOption(
            "offsets.storage.topic",
            default=None,
            importance=LOW,
            doc="Accepted if it is the worker's topic.",
            group="offsets.topic",
            width=Width.LONG,
            display_name="Offsets topic",
        ),
    )
)
SINKS: Final = ConfigDef(
    (
        ConnectorOption(
            "topics",
            Type.LIST,
            "",
            HIGH,
            "List of topics to consume, separated by commas",
            group=COMMON,
            width=Width.LONG,
            display_name="Topics",
        ),
        ConnectorOption(
            "topics.regex",
            default="",
            importance=HIGH,
            doc=(
                "Regular expression giving topics to consume. Only one of topics or topics.regex "
                "should be specified."
            ),
            check=lambda text: is_regex(text) if text else None,
            group=COMMON,
            width=Width.LONG,
            display_name="Topics regex",
        ),
    )
)
