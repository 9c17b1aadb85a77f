"""Notices that a topic was deleted and made again: its records begin anew, whatever a sink has read of the one before.

Offsets say nothing about that, but the ids of topics do: commits have the topic's id as their metadata, and tasks look from
time to time whether the ids are still the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from barnabas.admin.blocking import Admin
from barnabas.client.errors import ClientError

METADATA: Final = "topic-id="
IDLE_S: Final = 30.0
"""How often the ids are asked for while no records come."""


class TopicIds:
    """The ids of the topics that a task reads. Brokers before Kafka 2.8 have none; then nothing is noticed."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._known: dict[str, str] = {}
        self._looked_at = 0.0

    def is_due(self, has_read: bool) -> bool:
        """Whether to look again. has_read: records have come since the last look."""
        return has_read or time.monotonic() - self._looked_at > IDLE_S

    def look(self, topics: Iterable[str]) -> set[str]:
        """Asks for the ids; the topics that were made again since they were asked for last."""
        names = sorted({*topics})
        self._looked_at = time.monotonic()
        try:
            descriptions = self._admin.topics.describe(names).done if names else {}
        except ClientError:
            return set()  # the consumer will tell that brokers do not answer
        anew = set()
        for name, topic in descriptions.items():
            if topic.id is None:
                continue
            now = str(topic.id)
            if self._known.get(name, now) != now:
                anew.add(name)
            self._known[name] = now
        return anew

    def metadata(self, topic: str) -> str:
        """What a commit says about the topic; empty if its id is not known."""
        topic_id = self._known.get(topic)
        return f"{METADATA}{topic_id}" if topic_id else ""

    def is_of_another(self, topic: str, metadata: str | None) -> bool:
        """Whether an offset was committed for a topic that had this name before."""
        committed_with, known = metadata or "", self._known.get(topic)
        return (
            committed_with.startswith(METADATA)
            and known is not None
            and committed_with != f"{METADATA}{known}"
        )
