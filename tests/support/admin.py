"""Administration in tests, through librdkafka's admin client."""

from __future__ import annotations

from typing import Any, Final

KEPT: Final = {"retention.ms": "-1"}
"""For topics whose records carry old times: retention would remove them whenever the broker looks."""


def admin(bootstrap: str) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap})


def create_topic(
    bootstrap: str, topic: str, partitions: int = 1, config: dict[str, str] | None = None
) -> None:
    from confluent_kafka.admin import NewTopic

    client = admin(bootstrap)  # held: a client that is collected drops what it was asked
    created = client.create_topics([NewTopic(topic, partitions, 1, config=config or {})])
    created[topic].result(30)


def set_group_option(bootstrap: str, group: str, option: str, value: str) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    entry = ConfigEntry(option, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[entry])
    client = admin(bootstrap)
    client.incremental_alter_configs([resource])[resource].result(30)
