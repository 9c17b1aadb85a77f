"""Topics that connectors write to are created with the connector's options. Source: KIP-158."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, Final

from barnabas.admin import NewTopic
from barnabas.admin.blocking import Admin
from barnabas.client.errors import ClientError
from barnabas.connect.errors import ConnectError
from barnabas.connect.options import ConnectorOption, Type
from barnabas.wire.errors import ErrorCode

log = logging.getLogger("barnabas.connect")

PREFIX: Final = "topic.creation."
DEFAULT: Final = "default"
NUMBERS: Final = ("replication.factor", "partitions")


class Creation:
    """Creates topics before they are first written. Without topic.creation.* the brokers do, if they may."""

    def __init__(self, admin: Admin, config: Mapping[str, Any], enabled: bool) -> None:
        self._admin, self._config = admin, config
        self._groups = [*config.get("topic.creation.groups", ()), DEFAULT]
        self._enabled = enabled and any(name.startswith(f"{PREFIX}{DEFAULT}.") for name in config)
        self._known: set[str] = set()

    def require(self, topic: str) -> None:
        """Makes sure that a topic exists. Raises ConnectError."""
        if topic in self._known:
            return
        if self._enabled and topic not in self._admin.topics.describe([topic]).done:
            self._create(topic)
        self._known.add(topic)

    def _create(self, topic: str) -> None:
        group = next(group for group in self._groups if self._takes(group, topic))
        rows = {**self._of(DEFAULT), **self._of(group)}
        configs = {
            name: str(value) for name, value in rows.items() if name not in (*NUMBERS, "include", "exclude")
        }
        try:
            replication, partitions = (int(rows[name]) for name in NUMBERS)
        except (KeyError, ValueError) as error:
            raise ConnectError(
                f"topic.creation.{DEFAULT} needs numbers for replication.factor and partitions: {error}"
            ) from None
        try:
            new = NewTopic(topic, partitions, replication, configs)
            self._admin.topics.create([new]).except_for(ErrorCode.TOPIC_ALREADY_EXISTS).require()
        except ClientError as error:
            raise ConnectError(f"topic {topic} cannot be created: {error}") from error
        log.info("topic created", extra={"topic": topic, "group": group, "partitions": partitions})

    def _of(self, group: str) -> dict[str, Any]:
        prefix = f"{PREFIX}{group}."
        return {
            name.removeprefix(prefix): text for name, text in self._config.items() if name.startswith(prefix)
        }

    def _takes(self, group: str, topic: str) -> bool:
        if group == DEFAULT:
            return True
        rows = self._of(group)
        included, excluded = (
            any(
                re.fullmatch(pattern.strip(), topic)
                for pattern in str(rows.get(name, "")).split(",")
                if pattern.strip()
            )
            for name in ("include", "exclude")
        )
        return included and not excluded


def declared(config: Mapping[str, Any]) -> list[ConnectorOption]:
    """The options of topic.creation.* that the groups of a configuration have."""
    groups = [
        part.strip() for part in str(config.get("topic.creation.groups") or "").split(",") if part.strip()
    ]
    if not any(name.startswith(f"{PREFIX}{DEFAULT}.") for name in config) and not groups:
        return []
    rows = [
        ConnectorOption(
            f"{PREFIX}{DEFAULT}.{name}", kind, doc=f"The {name} of new topics", group="Topic Creation"
        )
        for name, kind in (("replication.factor", Type.SHORT), ("partitions", Type.INT))
    ]
    for group in groups:
        rows.append(
            ConnectorOption(
                f"{PREFIX}{group}.include", Type.LIST, doc="Patterns of topics", group="Topic Creation"
            )
        )
        rows.append(
            ConnectorOption(
                f"{PREFIX}{group}.exclude", Type.LIST, "", doc="Patterns of topics", group="Topic Creation"
            )
        )
    return rows
