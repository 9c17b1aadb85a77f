"""Client quotas at work: what a request costs, and for how long its connection is left unread afterwards.

A client over its quota gets its answer at once, with `throttle_time_ms` in it; then the broker reads nothing more
from that connection for as long (KIP-219). Where no quota is set the dispatcher does not ask here at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from barnabas.config import broker_replication
from barnabas.cores.quota import Quota, QuotaCore, Use
from barnabas.wire.messages.fetch import FetchResponse

if TYPE_CHECKING:
    from barnabas.broker.context import Context
    from barnabas.config.loader import BrokerConfig
    from barnabas.wire.schema import Message

KINDS: Final = frozenset({"users", "clients", "ips"})
"""Where quotas lie under /config."""
ENFORCED: Final = (Quota.PRODUCE, Quota.FETCH, Quota.REQUEST)
USER_PREFIX: Final = "User:"


class Quotas:
    """The quotas of one broker."""

    def __init__(self, config: BrokerConfig) -> None:
        self.core = QuotaCore(
            config.get(broker_replication.QUOTA_WINDOW_NUM),
            config.get(broker_replication.QUOTA_WINDOW_SIZE_SECONDS) * 1000,
        )

    def configure(self, configs: Mapping[tuple[str, str], Mapping[str, str]]) -> None:
        """Take over the quotas among the cluster image's configs."""
        self.core.configure(configs)

    @property
    def in_use(self) -> bool:
        """Whether any quota is set that a request could go against."""
        return any(self.core.limits(quota) for quota in ENFORCED)

    def charge_produce(self, context: Context, size_bytes: int) -> None:
        """Count a produce request, all of whose bytes count."""
        self._charge(context, Quota.PRODUCE, size_bytes)

    def charge_time(self, context: Context, seconds: float) -> None:
        """Count the time that the broker's thread spent on a request."""
        self._charge(context, Quota.REQUEST, seconds * 100)

    def charge_answer(self, context: Context, answer: Message) -> None:
        """Count the records in the answer to a fetch."""
        if isinstance(answer, FetchResponse) and self.core.limits(Quota.FETCH):
            size_bytes = sum(
                one.records.size if hasattr(one.records, "size") else len(one.records)
                for topic in answer.responses
                for one in topic.partitions
                if one.records is not None
            )
            self._charge(context, Quota.FETCH, size_bytes)

    def _charge(self, context: Context, quota: Quota, amount: float) -> None:
        if not self.core.limits(quota):
            return
        use = Use(
            quota,
            amount,
            int(context.broker.clock.monotonic_ms()),
            user=context.connection.principal.removeprefix(USER_PREFIX),
            client_id=context.client_id or "",
        )
        context.throttle_ms = max(context.throttle_ms, self.core.record(use))
