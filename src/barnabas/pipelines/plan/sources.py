"""What is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.client.patterns import java_pattern
from barnabas.pipelines.plan.places import ASIDE


@dataclass(frozen=True, slots=True)
class Source:
    """What is read; if from brokers, exactly one of topics and pattern is set. encoding: of values that a step reads as
    text; None is UTF-8. kind: see kinds/sources/. settings: of kinds that do not read topics. deletes: whether a record
    without a value stands for a delete of its key. connector: the configuration of a source connector that fills the
    topics while the pipeline runs; empty if there is none.

    Spark keeps the offsets of a source as JSON in the checkpoint, and a kind may choose any: those of topics are Kafka's.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    start: str = field(default="earliest", metadata=ASIDE)
    encoding: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, metadata=ASIDE)
    where: str = field(default="", compare=False)
    kind: str = "topic"
    settings: Mapping[str, Any] = field(default_factory=dict, metadata=ASIDE)
    deletes: bool = False
    connector: Mapping[str, str] = field(default_factory=dict, metadata=ASIDE)

    @property
    def of_topics(self) -> bool:
        """Whether it is read from brokers."""
        return bool(self.topics) or self.pattern is not None

    def reads(self, topic: str) -> bool:
        """Whether a topic is one that it reads."""
        if self.pattern is None:
            return topic in self.topics
        return java_pattern(self.pattern).fullmatch(topic) is not None
