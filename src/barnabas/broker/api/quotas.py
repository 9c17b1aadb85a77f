"""Client quotas: what a request costs, and for how long its connection is not read afterwards.

A client over its quota gets its answer at once, with `throttle_time_ms` in it; then the broker reads nothing more
from that connection for as long (KIP-219). Where no quota is set the dispatcher does not ask here at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from barnabas.config import broker_replication
from barnabas.cores.quota import Quota, QuotaCore, Use
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.fetch import FetchResponse
from barnabas.wire.messages.share_fetch import ShareFetchResponse

if TYPE_CHECKING:
    from barnabas.config.loader import BrokerConfig
    from barnabas.runtime.clock import Clock
    from barnabas.wire.schema import Message

KINDS: Final = frozenset({"users", "clients", "ips"})
"""Where quotas are stored under /config."""
OF_REQUESTS: Final = (Quota.PRODUCE, Quota.FETCH, Quota.REQUEST, Quota.MUTATION)
OF_PRODUCE_REQUESTS: Final = (Quota.PRODUCE, Quota.REQUEST)
USER_PREFIX: Final = "User:"


class Charged(Protocol):
    """A request that is charged: whose it is, and how long its connection must pause afterwards."""

    client_id: str | None
    throttle_ms: int

    @property
    def principal(self) -> str:
        """The user's name, as used in quotas by user."""


class Quotas:
    """The quotas of one broker."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._clock = clock
        get = config.get
        self.core = QuotaCore(
            get(broker_replication.QUOTA_WINDOW_NUM),
            get(broker_replication.QUOTA_WINDOW_SIZE_SECONDS) * 1000,
            get(broker_replication.CONTROLLER_QUOTA_WINDOW_NUM)
            * get(broker_replication.CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS),
        )

    def configure(self, configs: Mapping[tuple[str, str], Mapping[str, str]]) -> None:
        """Take the quotas from the cluster image's configs."""
        self.core.configure(configs)

    @property
    def in_use(self) -> bool:
        """Whether any quota is set that a request could exceed."""
        return any(self.core.limits(quota) for quota in OF_REQUESTS)

    @property
    def of_produce_in_use(self) -> bool:
        """Whether any quota is set that a produce request could exceed."""
        return any(self.core.limits(quota) for quota in OF_PRODUCE_REQUESTS)

    def charge_produce(self, context: Charged, size_bytes: int) -> None:
        """Charge a produce request by its whole size."""
        self._charge(context, Quota.PRODUCE, size_bytes)

    def charge_time(self, context: Charged, seconds: float) -> None:
        """Charge the time that the broker's thread spent on a request."""
        self._charge(context, Quota.REQUEST, seconds * 100)

    def charge_answer(self, context: Charged, answer: Message) -> None:
        """Charge the records in the answer to a fetch."""
        if isinstance(answer, FetchResponse | ShareFetchResponse) and self.core.limits(Quota.FETCH):
            size_bytes = sum(
                partition.records.size if hasattr(partition.records, "size") else len(partition.records)
                for topic in answer.responses
                for partition in topic.partitions
                if partition.records is not None
            )
            self._charge(context, Quota.FETCH, size_bytes)

    def charge_mutation(self, context: Charged, partitions: int, *, strict: bool) -> None:
        """Charge partitions that are about to be created or deleted.

        strict: the client knows THROTTLING_QUOTA_EXCEEDED, and ApiError is raised with it while earlier changes have
        overdrawn the quota. Other clients are let through and throttled afterwards (KIP-599).
        """
        if not self.core.limits(Quota.MUTATION):
            return
        use = self._use(context, Quota.MUTATION, partitions)
        if not strict:
            context.throttle_ms = max(context.throttle_ms, self.core.record(use))
            return
        wait_ms = self.core.exhausted_ms(use)
        if wait_ms:
            context.throttle_ms = max(context.throttle_ms, wait_ms)
            raise ApiError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"the quota controller_mutation_rate is used up; try again in {wait_ms} ms",
            )
        self.core.record(use)

    def _charge(self, context: Charged, quota: Quota, amount: float) -> None:
        if self.core.limits(quota):
            use = self._use(context, quota, amount)
            context.throttle_ms = max(context.throttle_ms, self.core.record(use))

    def _use(self, context: Charged, quota: Quota, amount: float) -> Use:
        return Use(
            quota,
            amount,
            int(self._clock.monotonic_ms()),
            user=context.principal.removeprefix(USER_PREFIX),
            client_id=context.client_id or "",
        )
