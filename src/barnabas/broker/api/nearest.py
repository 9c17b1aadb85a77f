"""Which replica a consumer reads from (KIP-392): with `replica.selector.class`, one in its own rack.

When a consumer names its rack, the leader answers its fetch with the id of an in-sync follower there, and the consumer
continues with that follower, up to the high watermark that the follower knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.config import broker_replication

if TYPE_CHECKING:
    from barnabas.broker.api.services import Services
    from barnabas.broker.partitions.fetching import Prefer
    from barnabas.broker.partitions.partition import Partition
    from barnabas.cores.fetch import FetchPartition


def sends_consumers_on(services: Services) -> bool:
    """Whether consumers may read from followers, which must then learn of new high watermarks quickly."""
    selector = services.config.get(broker_replication.REPLICA_SELECTOR_CLASS)
    return selector in broker_replication.RACK_AWARE_SELECTOR


def nearest(services: Services, rack: str) -> Prefer | None:
    """The function that chooses the replica for a consumer in `rack`; None when all consumers read from leaders."""
    if not rack or not sends_consumers_on(services):
        return None
    brokers = services.image.brokers
    node_id = services.controller.node_id

    def prefer(partition: Partition, asked: FetchPartition) -> int:
        if not partition.is_leader or partition.offline is not None:
            return -1
        here = brokers.get(node_id)
        if here is not None and here.rack == rack:
            return -1
        for node in partition.in_sync_with(asked.fetch_offset):
            broker = brokers.get(node)
            if broker is not None and broker.rack == rack:
                return node
        return -1

    return prefer
