"""How the broker's own topics are created: their partitions, replicas and options, from the configuration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.config import broker_groups, broker_share, broker_zookeeper
from barnabas.config.option import Option
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.config.loader import BrokerConfig

OFFSETS_TOPIC: Final = "__consumer_offsets"
SHARE_STATE_TOPIC: Final = "__share_group_state"
TRANSACTION_TOPIC: Final = "__transaction_state"


class InternalTopic(NamedTuple):
    """segment_bytes and min_in_sync become the topic's options; `configs` are fixed."""

    partitions: Option[int]
    replication_factor: Option[int]
    segment_bytes: Option[int]
    configs: Mapping[str, str]
    min_in_sync: Option[int] | None = None


INTERNAL: Final[Mapping[str, InternalTopic]] = {
    OFFSETS_TOPIC: InternalTopic(
        broker_groups.OFFSETS_TOPIC_NUM_PARTITIONS,
        broker_groups.OFFSETS_TOPIC_REPLICATION_FACTOR,
        broker_groups.OFFSETS_TOPIC_SEGMENT_BYTES,
        {"cleanup.policy": "compact", "compression.type": "producer"},
    ),
    # Not compacted: all deltas of a share partition have the same key, and each one since the snapshot counts. Records
    # are deleted once newer snapshots replace them (shares.states).
    SHARE_STATE_TOPIC: InternalTopic(
        broker_share.SHARE_STATE_TOPIC_NUM_PARTITIONS,
        broker_share.SHARE_STATE_TOPIC_REPLICATION_FACTOR,
        broker_share.SHARE_STATE_TOPIC_SEGMENT_BYTES,
        {"cleanup.policy": "delete", "retention.ms": "-1", "compression.type": "producer"},
        broker_share.SHARE_STATE_TOPIC_MIN_ISR,
    ),
    TRANSACTION_TOPIC: InternalTopic(
        broker_share.TRANSACTION_STATE_LOG_NUM_PARTITIONS,
        broker_share.TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
        broker_share.TRANSACTION_STATE_LOG_SEGMENT_BYTES,
        {"cleanup.policy": "compact", "compression.type": "uncompressed"},
        broker_share.TRANSACTION_STATE_LOG_MIN_ISR,
    ),
}


def creation(config: BrokerConfig, name: str, brokers: int) -> tuple[int, int, dict[str, Any], bool]:
    """How to create an internal topic: (partitions, replication factor, options, whether fewer replicas are acceptable).

    Fewer replicas than configured are acceptable on a broker without ZooKeeper, which is alone, and if the replication
    factor was not set explicitly. brokers: the number of live brokers.
    """
    topic = INTERNAL[name]
    is_alone = not config.get(broker_zookeeper.ZOOKEEPER_CONNECT)
    may_clamp = is_alone or not config.is_set(topic.replication_factor)
    factor = config.get(topic.replication_factor)
    configs = {**topic.configs, "segment.bytes": str(config.get(topic.segment_bytes))}
    if topic.min_in_sync is not None:
        replicas = min(factor, brokers) if may_clamp else factor
        # A default must not make the topic unwritable as soon as the first replica is lost.
        most = replicas if config.is_set(topic.min_in_sync) else max(replicas - 1, 1)
        configs["min.insync.replicas"] = str(min(config.get(topic.min_in_sync), most))
    return config.get(topic.partitions), factor, configs, may_clamp


async def usable(topic: str, ensure: Callable[[str], Awaitable[int]]) -> int:
    """The partition count that `ensure` returns. Raises ApiError COORDINATOR_NOT_AVAILABLE, whatever refused the topic.

    Clients look for a coordinator again after this error. One about the topic itself (no leader yet, too few brokers) would
    puzzle a client that asked about a group.
    """
    try:
        return await ensure(topic)
    except ApiError as error:
        why = f"{topic} cannot be used yet, try again: {error.message or error.code.name}"
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, why) from error
