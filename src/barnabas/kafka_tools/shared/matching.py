"""Topics by regular expression: Kafka's tools take Java's syntax, which neither Python's `re` nor librdkafka reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.client.patterns import PatternError, java_pattern
from barnabas.cores.cluster_image import INTERNAL_TOPICS
from barnabas.kafka_tools.shared.common import ToolError

Key = tuple[str, int]

LIST_TIMEOUT_S: Final = 30.0
AGAIN_S: Final = 1.0
"""How soon to look again while no topic matches."""
AGE_S: Final = 30.0
"""How soon, at the latest, a new topic that matches is found; metadata.max.age.ms makes it sooner."""


def topic_pattern(text: str) -> Any:
    """The compiled expression of an option: several with commas between them are alternatives, quotes around it are none of
    it, and `*` alone, which is no expression, means every topic. Raises ToolError.
    """
    plain = text.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        return java_pattern(".*" if plain == "*" else plain)
    except PatternError as error:
        raise ToolError(f"{text} is an invalid regex: {error}") from None


@dataclass(slots=True)
class Matching:
    """Keeps a consumer of librdkafka reading the topics that match, also those that are made later.

    wanted, unwanted: of names. with_internal: whether internal topics count. on_revoke: as for `Consumer.subscribe`.
    begin_at: where to begin, for a consumer that is alone in its group: its partitions are assigned, since a group that
    commits nothing would begin anew at each change of its topics. None: the consumer subscribes.
    """

    consumer: Any
    wanted: Any
    unwanted: Any = None
    with_internal: bool = False
    on_revoke: Callable[..., None] | None = None
    begin_at: int | None = None
    age_s: float = AGE_S
    matched: set[Key] = field(default_factory=set)
    look_at: float = 0.0

    @classmethod
    def of(
        cls,
        consumer: Any,
        properties: Mapping[str, str],
        include: str,
        exclude: str = "",
        *,
        on_revoke: Callable[..., None] | None = None,
        begin_at: int | None = None,
    ) -> Matching:
        """properties: Java's, of the consumer. Raises ToolError."""
        age_ms = properties.get("metadata.max.age.ms", "")
        return cls(
            consumer,
            topic_pattern(include),
            topic_pattern(exclude) if exclude else None,
            properties.get("exclude.internal.topics", "true").strip().lower() != "true",
            on_revoke,
            begin_at,
            min(AGE_S, int(age_ms) / 1000) if age_ms.isdigit() else AGE_S,
        )

    def matches(self, name: str) -> bool:
        """Whether a topic is to be read."""
        if name in INTERNAL_TOPICS and not self.with_internal:
            return False
        unwanted = self.unwanted is not None and self.unwanted.fullmatch(name)
        return bool(self.wanted.fullmatch(name)) and not unwanted

    def look(self) -> None:
        """Read also what matches now, if it is time to look again."""
        from confluent_kafka import KafkaException

        now = time.monotonic()
        if now < self.look_at:
            return
        try:
            topics = self.consumer.list_topics(timeout=LIST_TIMEOUT_S).topics
        except KafkaException:
            topics = {}  # no broker answers now: the consumer itself goes on trying
        there = {(name, part) for name in filter(self.matches, topics) for part in topics[name].partitions}
        if there - self.matched:
            self.take(there)
        self.look_at = now + (self.age_s if self.matched else AGAIN_S)

    def take(self, there: set[Key]) -> None:
        """Read these partitions, some of which are new. A topic that was made meanwhile is read from its beginning."""
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition

        if self.begin_at is None:
            revoked = {} if self.on_revoke is None else {"on_revoke": self.on_revoke}
            self.consumer.subscribe(sorted({name for name, _ in there}), **revoked)
        else:
            begin_at = OFFSET_BEGINNING if self.matched or self.look_at else self.begin_at
            added = [TopicPartition(*key, begin_at) for key in sorted(there - self.matched)]
            self.consumer.incremental_assign(added)
        self.matched |= there
