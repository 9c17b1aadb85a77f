"""A broker's periodic jobs: retention, checkpoints, flushes, idle connections, offset expiry.

Each job has its own interval. Jobs that access disks run in threads; jobs that use cores run on the loop.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from barnabas.config import (
    broker_groups,
    broker_log,
    broker_network,
    broker_replication,
    broker_security,
    broker_share,
)
from barnabas.storage.errors import StorageError
from barnabas.wire.errors import ApiError

if TYPE_CHECKING:
    from barnabas.broker.api.services import Services

log = logging.getLogger("barnabas.housekeeping")

CHECKPOINT_MS_MIN: Final = 100
CLIENTS_CHECK_MS: Final = 60_000
IDLE_CHECK_MS_MAX: Final = 60_000
FLUSH_CHECK_MS: Final = 1_000
METADATA_COPY_MS: Final = 60_000
AGEING_MS: Final = 60_000
AGEING_FACTOR: Final = 0.4
"""Percentiles are of the last five minutes above all, as those of Kafka's decaying samples (alpha 0.015 a second)."""
CERTIFICATES_CHECK_MS: Final = 5_000
BIN_CHECK_MS: Final = 5_000

Job = Callable[[], Awaitable[None]]


class Housekeeping:
    """The periodic jobs of one broker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start all jobs; each runs first after its interval."""
        config = self._services.config
        idle_ms = config.get(broker_network.CONNECTIONS_MAX_IDLE_MS)
        recovery_points_ms = config.get(broker_log.LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS)
        log_starts_ms = config.get(broker_log.LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS)
        jobs: list[tuple[str, int, Job]] = [
            ("retention", config.get(broker_log.LOG_RETENTION_CHECK_INTERVAL_MS), self._retention),
            (
                "checkpoints",
                max(min(recovery_points_ms, log_starts_ms), CHECKPOINT_MS_MIN),
                self._checkpoints,
            ),
            ("flush", FLUSH_CHECK_MS, self._flush),
            ("offsets", config.get(broker_groups.OFFSETS_RETENTION_CHECK_INTERVAL_MS), self._expire_offsets),
        ]
        prune_ms = config.get(broker_share.SHARE_STATE_TOPIC_PRUNE_INTERVAL_MS)
        jobs.append(("share groups", prune_ms, self._prune_shares))
        ids_ms = config.get(broker_share.TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS)
        jobs.append(("transactional ids", ids_ms, self._services.transactions.expire_ids))
        producers_ms = config.get(broker_share.PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS)
        jobs.append(("idle producers", producers_ms, self._forget_producers))
        jobs.append(("metadata copies", METADATA_COPY_MS, self._services.controller.keep_copies))
        jobs.append(("bin of topics", BIN_CHECK_MS, self._tend_bin))
        jobs.append(("ageing of times", AGEING_MS, self._age_times))
        jobs.append(("silent clients", CLIENTS_CHECK_MS, self._expire_clients))
        tokens_ms = config.get(broker_security.DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS)
        jobs.append(("delegation tokens", tokens_ms, self._services.tokens.remove_expired))
        if self._services.listeners.tls:
            jobs.append(("certificates", CERTIFICATES_CHECK_MS, self._refresh_certificates))
        balance_ms = config.get(broker_replication.LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS) * 1000
        jobs.append(("preferred leaders", balance_ms, self._services.controller.balance))
        often_ms = min(idle_ms, IDLE_CHECK_MS_MAX) if idle_ms > 0 else IDLE_CHECK_MS_MAX
        jobs.append(("idle connections", often_ms, self._close_idle))
        for name, interval_ms, job in jobs:
            self._tasks.append(asyncio.ensure_future(self._every(name, interval_ms, job)))

    async def stop(self) -> None:
        """Cancel the jobs and wait until they have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _every(self, name: str, interval_ms: int, job: Job) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                await job()
            except (ApiError, StorageError, OSError) as error:
                log.error(
                    "a periodic job failed; it is tried again", extra={"job": name, "reason": str(error)}
                )
            except Exception:
                log.exception("a periodic job met a bug; it is tried again", extra={"job": name})

    async def _retention(self) -> None:
        await self._services.partitions.delete_old_segments()

    async def _checkpoints(self) -> None:
        await self._services.partitions.checkpoint()

    async def _flush(self) -> None:
        await self._services.partitions.flush_due()
        await self._services.partitions.remove_doomed()

    async def _expire_offsets(self) -> None:
        await self._services.groups.expire_offsets()

    async def _prune_shares(self) -> None:
        self._services.shares.states.prune()

    async def _forget_producers(self) -> None:
        self._services.partitions.forget_idle_producers()

    async def _tend_bin(self) -> None:
        controller = self._services.controller
        await controller.bin.tend(self._services.clock.now_ms(), in_office=controller.in_office)

    async def _expire_clients(self) -> None:
        self._services.quotas.core.expire(int(self._services.clock.monotonic_ms()))
        self._services.telemetry.expire()

    async def _age_times(self) -> None:
        for stats in self._services.times.all:
            stats.age(AGEING_FACTOR)
        self._services.partitions.logs.flushes.age(AGEING_FACTOR)

    async def _refresh_certificates(self) -> None:
        self._services.listeners.refresh_tls()

    async def _close_idle(self) -> None:
        idle_ms = self._services.config.get(broker_network.CONNECTIONS_MAX_IDLE_MS)
        self._services.listeners.close_idle(idle_ms / 1000 if idle_ms > 0 else math.inf)
