"""How topics of one cluster are called in another, and which ones are copied. No I/O.

Source: Kafka's ReplicationPolicy, DefaultReplicationPolicy, IdentityReplicationPolicy, DefaultTopicFilter,
DefaultGroupFilter, DefaultConfigPropertyFilter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.client.patterns import PatternError, java_pattern

HEARTBEATS: Final = "heartbeats"
TOPICS_EXCLUDED: Final = "mm2.*\\.internal,.*\\.replica,__.*,.*[\\-\\.]internal"
GROUPS_EXCLUDED: Final = "console-consumer-.*,connect-.*,__.*"
OPTIONS_EXCLUDED: Final = (
    "follower\\.replication\\.throttled\\.replicas,leader\\.replication\\.throttled\\.replicas,"
    "message\\.timestamp\\.difference\\.max\\.ms,log\\.message\\.timestamp\\.before\\.max\\.ms,"
    "log\\.message\\.timestamp\\.after\\.max\\.ms,message\\.timestamp\\.type,"
    "unclean\\.leader\\.election\\.enable,min\\.insync\\.replicas"
)


@dataclass(frozen=True, slots=True)
class Patterns:
    """Regular expressions of whole names in Java's syntax. Raises PatternError when it is made."""

    texts: Sequence[str]
    _compiled: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        compiled = [java_pattern(text.strip()) for text in self.texts if text.strip()]
        object.__setattr__(self, "_compiled", compiled)

    def match(self, name: str) -> bool:
        """Whether one of them matches."""
        return any(pattern.fullmatch(name) for pattern in self._compiled)


@dataclass(frozen=True, slots=True)
class Filter:
    """What is included and not excluded."""

    included: Patterns
    excluded: Patterns

    @classmethod
    def of(cls, included: Sequence[str], excluded: Sequence[str]) -> Filter:
        """Raises PatternError."""
        return cls(Patterns(tuple(included)), Patterns(tuple(excluded)))

    def takes(self, name: str) -> bool:
        """Whether a name is taken."""
        return self.included.match(name) and not self.excluded.match(name)


@dataclass(frozen=True, slots=True)
class Policy:
    """DefaultReplicationPolicy: topic `orders` of cluster `east` is `east.orders` elsewhere.

    separator: instead of the dot. internal: the one of internal topics.
    """

    separator: str = "."
    internal: str = "."

    def remote(self, source: str, topic: str) -> str:
        """The name of a topic of `source` in the target."""
        return f"{source}{self.separator}{topic}"

    def source_of(self, topic: str) -> str | None:
        """The alias of the cluster that a topic was copied from; None if it was not."""
        alias, separator, _ = topic.partition(self.separator)
        return alias if separator else None

    def upstream(self, topic: str) -> str | None:
        """What a copied topic is called where it was copied from; None if it was not copied."""
        source = self.source_of(topic)
        return None if source is None else topic[len(source) + len(self.separator) :]

    def is_cycle(self, topic: str, target: str) -> bool:
        """Whether a topic has come from `target`, directly or through others."""
        source = self.source_of(topic)
        if source is None:
            return False
        if source == target:
            return True
        upstream = self.upstream(topic)
        return upstream is not None and upstream != topic and self.is_cycle(upstream, target)

    def is_heartbeats(self, topic: str) -> bool:
        """Whether a topic has heartbeats, or copies of them."""
        return topic == HEARTBEATS or self._original(topic) == HEARTBEATS

    def _original(self, topic: str) -> str:
        upstream = self.upstream(topic)
        return topic if upstream is None or upstream == topic else self._original(upstream)

    def syncs_topic(self, alias: str) -> str:
        """The topic of offset syncs with the cluster `alias`."""
        return f"mm2-offset-syncs{self.internal}{alias}{self.internal}internal"

    def checkpoints_topic(self, alias: str) -> str:
        """The topic, in the target, of checkpoints of groups of the cluster `alias`."""
        return f"{alias}{self.internal}checkpoints{self.internal}internal"

    def is_internal(self, topic: str) -> bool:
        """Whether a topic is Kafka's, Connect's or MirrorMaker's own."""
        return topic.startswith(("__", ".")) or topic.endswith(
            ("-internal", ".internal", f"{self.internal}internal")
        )

    def renamed(self, topic: str, source: str, target: str) -> str:
        """The name in the target of a topic of the source, which may be a copy of one of the target's."""
        return self._original(topic) if self.source_of(topic) == target else self.remote(source, topic)


@dataclass(frozen=True, slots=True)
class IdentityPolicy(Policy):
    """IdentityReplicationPolicy: copies keep their names, except for topics whose names end with `heartbeats`."""

    def remote(self, source: str, topic: str) -> str:
        """See Policy."""
        return Policy.remote(self, source, topic) if topic.endswith(HEARTBEATS) else topic

    def source_of(self, topic: str) -> str | None:
        """See Policy. Names do not say where a topic has come from."""
        return Policy.source_of(self, topic) if topic.endswith(HEARTBEATS) else None

    def upstream(self, topic: str) -> str | None:
        """See Policy."""
        return Policy.upstream(self, topic) if topic.endswith(HEARTBEATS) else topic

    def renamed(self, topic: str, source: str, target: str) -> str:
        """See Policy."""
        return topic


__all__ = ["GROUPS_EXCLUDED", "HEARTBEATS", "OPTIONS_EXCLUDED", "TOPICS_EXCLUDED"]
__all__ += ["Filter", "IdentityPolicy", "PatternError", "Patterns", "Policy"]
