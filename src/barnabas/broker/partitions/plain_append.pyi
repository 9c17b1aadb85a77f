import asyncio

from barnabas.broker.partitions.acknowledgement import Acknowledgement
from barnabas.broker.partitions.replica import Surroundings, Waiter
from barnabas.cores.replication import InSyncReplicas
from barnabas.records.units import LeaderEpoch
from barnabas.storage.logs.log import Log

class PartitionState:
    log: Log
    offline: str | None
    is_leader: bool
    leader_epoch: LeaderEpoch
    _surroundings: Surroundings
    _replicas: InSyncReplicas
    _flushing: asyncio.Future[object] | None
    _pending: list[Acknowledgement]
    waiters: dict[Waiter, None]
    bytes_in: int
    produce_requests: int
    failed_produces: int
    bytes_out: int
    fetch_requests: int
    failed_fetches: int
    replicated_in: int
    replicated_out: int
