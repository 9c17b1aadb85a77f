"""Replication throttles: limits on what a broker sends to, and fetches for, replicas that are not in sync.

The options `leader.replication.throttled.rate` and `follower.replication.throttled.rate` apply to the replicas that topics
list in `leader.replication.throttled.replicas` and `follower.replication.throttled.replicas`. Replicas in sync are never
throttled, since this would make them leave the in-sync set. Rates are averaged like client quotas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from barnabas.config import broker_replication, topic_options
from barnabas.config.option import LONG_MAX
from barnabas.cores.quota import RateWindows

if TYPE_CHECKING:
    from barnabas.broker.partitions.partition import Partition
    from barnabas.config.loader import BrokerConfig
    from barnabas.config.option import Option
    from barnabas.runtime.clock import Clock

EVERY: Final = "*"


class Throttle:
    """One side of a broker's throttle: that of leaders, or that of followers."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        node_id: int,
        rate: Option[int],
        replicas: Option[tuple[str, ...]],
    ) -> None:
        self._config = config
        self._clock = clock
        self._node_id = node_id
        self._rate_option = rate
        self._replicas_option = replicas.name
        self._rate = LONG_MAX
        self._topics: dict[str, frozenset[str]] = {}
        window_ms = config.get(broker_replication.REPLICATION_QUOTA_WINDOW_SIZE_SECONDS) * 1000
        self._used = RateWindows(config.get(broker_replication.REPLICATION_QUOTA_WINDOW_NUM), window_ms)
        self.is_on = False
        """False while nothing is limited, so that other methods need not be called."""

    def configure(self, configs: Mapping[tuple[str, str], Mapping[str, str]]) -> None:
        """Apply changed options. configs: as in the cluster image."""
        self._rate = self._config.get(self._rate_option)
        self._topics.clear()
        for (kind, topic), texts in configs.items():
            listed = texts.get(self._replicas_option) if kind == "topics" else None
            if listed:
                self._topics[topic] = frozenset(replica.strip() for replica in listed.split(","))
        self.is_on = self._rate < LONG_MAX and bool(self._topics)

    def limits(self, partition: Partition, replica: int) -> bool:
        """Whether copying a partition to `replica` is limited: it is listed, and the replica is not in sync."""
        if not self.is_on or replica in partition.image.isr:
            return False
        listed = self._topics.get(partition.topic, frozenset())
        return EVERY in listed or f"{partition.index}:{self._node_id}" in listed

    def note(self, size_bytes: int) -> None:
        """Count bytes that were copied for limited partitions."""
        self._used.add(size_bytes, int(self._clock.monotonic_ms()))

    def wait_ms(self) -> int:
        """For how long nothing may be copied, until the average is down to the rate; 0 while it is below."""
        return self._used.wait_ms(self._rate, int(self._clock.monotonic_ms()))


class Throttles:
    """Both sides of one broker's throttle."""

    def __init__(self, config: BrokerConfig, clock: Clock, node_id: int) -> None:
        self.leader = Throttle(
            config, clock, node_id, broker_replication.LEADER_REPLICATION_THROTTLED_RATE,
            topic_options.LEADER_REPLICATION_THROTTLED_REPLICAS,
        )  # fmt: skip
        self.follower = Throttle(
            config, clock, node_id, broker_replication.FOLLOWER_REPLICATION_THROTTLED_RATE,
            topic_options.FOLLOWER_REPLICATION_THROTTLED_REPLICAS,
        )  # fmt: skip

    def configure(self, configs: Mapping[tuple[str, str], Mapping[str, str]]) -> None:
        """Apply changed options."""
        self.leader.configure(configs)
        self.follower.configure(configs)
