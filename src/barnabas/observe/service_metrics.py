"""The metrics of the services around the brokers, declared once.

The registry's names are Confluent's; those of groups' lags are the names of kafka-lag-exporter, so that its dashboards
work.
"""

from __future__ import annotations

from typing import Final

from barnabas.observe.metric import Metric


def _own(kind: str, name: str, unit: str, help: str, labels: tuple[str, ...] = ()) -> Metric:
    properties = "".join(f",{label}={{{label}}}" for label in labels)
    mbean = f"barnabas.{kind}:type={kind},name={name.removesuffix('_total')}{properties}"
    attribute = "Count" if name.endswith("_total") else "Value"
    return Metric(mbean, attribute, f"barnabas_{kind}_{name}", unit, help, labels)


def _lag(name: str, unit: str, help: str, labels: tuple[str, ...]) -> Metric:
    return Metric(f"barnabas.monitor:type=lag,name={name}", "Value", f"kafka_{name}", unit, help, labels)


REGISTERED: Final = Metric(
    "kafka.schema.registry:type=registered-count",
    "registered-count",
    "kafka_schema_registry_registered_count",
    "schemas",
    "Versions of subjects that are registered, deleted ones not counted.",
)
OF_TYPE: Final = Metric(
    "barnabas.registry:type=registry,name=schemas,schema_type={type}",
    "Value",
    "kafka_schema_registry_schemas",
    "schemas",
    "The same by the type of the schema.",
    ("type",),
)
SUBJECTS: Final = Metric(
    "barnabas.registry:type=registry,name=subjects",
    "Value",
    "kafka_schema_registry_subjects",
    "subjects",
    "Subjects that have a version.",
)
ROLE: Final = Metric(
    "kafka.schema.registry:type=master-slave-role",
    "master-slave-role",
    "kafka_schema_registry_master_slave_role",
    "",
    "1: this instance writes; 0: it forwards changes to the one that does.",
)

CONSUMERS: Final = _own("rest", "consumer_instances", "consumers", "Consumer instances of API v2.")
POINTS: Final = _own(
    "reporting", "access_points", "access points", "Access points, by whether they are paused.", ("paused",)
)

OF_PIPELINE: Final = ("pipeline",)
OF_QUERY: Final = ("pipeline", "query")
UP: Final = _own("pipeline", "up", "", "1 while the pipeline runs.", OF_PIPELINE)
FAILED: Final = _own("pipeline", "failed", "", "1 while the pipeline has failed, and waits.", OF_PIPELINE)
STUCK: Final = _own(
    "pipeline",
    "stuck",
    "",
    "1 if a query, or the start, has not moved for minutes although records wait.",
    OF_PIPELINE,
)
RESTARTS: Final = _own(
    "pipeline", "restarts_total", "starts", "Starts after a failure since the server started.", OF_PIPELINE
)
RECORDS: Final = _own(
    "pipeline", "records_total", "records", "Records read since the query started.", OF_QUERY
)
DEAD_LETTERS: Final = _own(
    "pipeline", "dead_letters_total", "records", "Dead letters since the query began.", OF_QUERY
)
LATE: Final = _own(
    "pipeline", "late_rows_total", "rows", "Rows dropped since the query began: too late.", OF_QUERY
)
STATE_ROWS: Final = _own(
    "pipeline", "state_rows", "rows", "Rows that the query keeps in its state.", OF_QUERY
)
STATE_BYTES: Final = _own("pipeline", "state_bytes", "bytes", "Size of what the operators keep.", OF_QUERY)
RATE: Final = _own("pipeline", "records_per_second", "records/s", "Rate of the last micro-batch.", OF_QUERY)
LAG: Final = _own("pipeline", "lag_records", "records", "Records waiting in the source.", OF_QUERY)
CAUGHT_UP: Final = _own(
    "pipeline", "lag_seconds_left", "s", "When the query will have caught up at its present rate.", OF_QUERY
)

OF_GROUP: Final = ("cluster_name", "group")
OF_GROUP_PARTITION: Final = ("cluster_name", "group", "topic", "partition", "client_id", "member_host")
OF_PARTITION: Final = ("cluster_name", "topic", "partition")
LATEST: Final = _lag("partition_latest_offset", "offset", "The end of the partition.", OF_PARTITION)
GROUP_OFFSET: Final = _lag(
    "consumergroup_group_offset", "offset", "Where the group goes on.", OF_GROUP_PARTITION
)
GROUP_LAG: Final = _lag(
    "consumergroup_group_lag", "records", "Records that the group has not read.", OF_GROUP_PARTITION
)
GROUP_LAG_S: Final = _lag(
    "consumergroup_group_lag_seconds",
    "s",
    "How long the next record of the group has been waiting.",
    OF_GROUP_PARTITION,
)
MAX_LAG: Final = _lag(
    "consumergroup_group_max_lag", "records", "Lag of the slowest partition of the group.", OF_GROUP
)
MAX_LAG_S: Final = _lag("consumergroup_group_max_lag_seconds", "s", "The same in seconds.", OF_GROUP)
SUM_LAG: Final = _lag(
    "consumergroup_group_sum_lag", "records", "Lag of all partitions of the group.", OF_GROUP
)
GROUP_MEMBERS: Final = _lag(
    "consumergroup_group_members", "members", "Members of the group, by its state.", (*OF_GROUP, "state")
)
SEEN: Final = _own(
    "monitor", "cluster_up", "", "1 if the last look at the cluster succeeded.", ("cluster_name",)
)

METRICS: Final = (
    REGISTERED, OF_TYPE, SUBJECTS, ROLE, CONSUMERS, POINTS, UP, FAILED, STUCK, RESTARTS, RECORDS,
    DEAD_LETTERS, LATE, STATE_ROWS, STATE_BYTES, RATE, LAG, CAUGHT_UP, LATEST, GROUP_OFFSET, GROUP_LAG,
    GROUP_LAG_S, MAX_LAG, MAX_LAG_S, SUM_LAG, GROUP_MEMBERS, SEEN,
)  # fmt: skip
