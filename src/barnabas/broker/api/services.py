"""The parts of the broker that handlers use, assembled once at start (server.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from barnabas.broker.api.announced import AnnouncedApis
    from barnabas.broker.api.authorizer import Authorizer
    from barnabas.broker.api.conversion import Conversions
    from barnabas.broker.api.endpoints import Endpoints
    from barnabas.broker.api.quotas import Quotas
    from barnabas.broker.api.schema_checks import SchemaChecks
    from barnabas.broker.api.telemetry import Telemetry
    from barnabas.broker.cluster.controller import Controller
    from barnabas.broker.cluster.features import Features
    from barnabas.broker.cluster.in_sync import InSync
    from barnabas.broker.cluster.producer_ids import ProducerIds
    from barnabas.broker.cluster.tokens import Tokens
    from barnabas.broker.coordinators.groups import GroupCoordinator
    from barnabas.broker.coordinators.shares import Shares
    from barnabas.broker.coordinators.transactions import Transactions
    from barnabas.broker.links.links import Links
    from barnabas.broker.net.listeners import Listeners
    from barnabas.broker.net.peers import Peers
    from barnabas.broker.partitions.moving import Moving
    from barnabas.broker.partitions.registry import Partitions
    from barnabas.broker.partitions.replicating import Replication
    from barnabas.config.loader import BrokerConfig
    from barnabas.cores.cluster_image import ClusterImage
    from barnabas.cores.fetch import SessionCache
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.entropy import Entropy
    from barnabas.runtime.timing import RequestStats, RequestTimes


@dataclass(frozen=True, eq=False)
class Services:
    """See the module. Only server.py makes one; a request reaches it through its Context."""

    config: BrokerConfig
    loop: asyncio.AbstractEventLoop
    clock: Clock
    entropy: Entropy
    controller: Controller
    partitions: Partitions
    moving: Moving
    groups: GroupCoordinator
    shares: Shares
    transactions: Transactions
    producer_ids: ProducerIds
    fetch_sessions: SessionCache
    features: Features
    quotas: Quotas
    conversions: Conversions
    schema_checks: SchemaChecks
    telemetry: Telemetry
    apis: AnnouncedApis
    endpoints: Endpoints
    listeners: Listeners
    tokens: Tokens
    peers: Peers
    replication: Replication
    in_sync: InSync
    links: Links
    authorizer: Authorizer | None
    """None when everybody may do everything."""
    fetch_bytes_max: int
    """fetch.max.bytes; held here because every fetch reads it."""
    times: RequestTimes
    """How many requests there were, and how long they took."""
    consumer_fetches: RequestStats
    follower_fetches: RequestStats

    @property
    def image(self) -> ClusterImage:
        """The cluster's current metadata."""
        return self.controller.image
