"""How many connections may be open and how fast new ones may arrive: for the broker, a listener, or one address.

Connections over the broker's or a listener's limits wait in the listener's backlog. Connections over their address's limits
are closed: at once when too many are open, after a delay when they arrive too fast, which slows down clients that
reconnect at once without affecting others (KIP-612). Source: Kafka's ConnectionQuotas.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from barnabas.config import broker_network, broker_replication
from barnabas.cores.quota import Quota, QuotaCore, RateWindows, Use

if TYPE_CHECKING:
    from barnabas.config.loader import BrokerConfig
    from barnabas.config.option import Option
    from barnabas.runtime.clock import Clock

log = logging.getLogger("barnabas.connection")

WHOLE_BROKER: Final = ""
V4_IN_V6: Final = "::ffff:"


class ConnectionLimits:
    """Counts the connections of one broker. Call `configure` whenever options have changed."""

    def __init__(self, config: BrokerConfig, quotas: QuotaCore, clock: Clock) -> None:
        self._config = config
        self._quotas = quotas
        self._clock = clock
        self._open_of_ip: Counter[str] = Counter()
        self._open_of_listener: Counter[str] = Counter()
        self._rates: dict[str, RateWindows] = {}
        self._overrides: dict[str, int] = {}
        self._looked_up: asyncio.Task[None] | None = None
        self.configure()

    def configure(self) -> None:
        """Apply the current options. Host names among the overrides are resolved in the background."""
        self._per_ip_max = self._config.get(broker_network.MAX_CONNECTIONS_PER_IP)
        text = self._config.get(broker_network.MAX_CONNECTIONS_PER_IP_OVERRIDES)
        pairs = (override.rpartition(":") for override in text.split(",") if override.strip())
        limits = {host.strip(): int(limit) for host, _, limit in pairs}
        self._overrides = {host: limit for host, limit in limits.items() if _is_address(host)}
        names = {host: limit for host, limit in limits.items() if not _is_address(host)}
        self.close()
        if names:
            self._looked_up = asyncio.ensure_future(self._look_up(names))

    def close(self) -> None:
        """Stop resolving host names."""
        if self._looked_up is not None:
            self._looked_up.cancel()
            self._looked_up = None

    async def _look_up(self, names: Mapping[str, int]) -> None:
        for name, limit in names.items():
            try:
                addresses = await asyncio.get_running_loop().getaddrinfo(name, None)
            except OSError as error:
                log.warning(
                    "max.connections.per.ip.overrides names a host that is not known",
                    extra={"host": name, "reason": str(error)},
                )
                continue
            for address in addresses:
                self._overrides[str(address[4][0])] = limit

    # --- counting --------------------------------------------------------------------------------------

    def opened(self, listener: str, ip: str) -> None:
        """Count a connection."""
        self._open_of_listener[listener] += 1
        self._open_of_ip[plain(ip)] += 1

    def closed(self, listener: str, ip: str) -> None:
        """Uncount a connection."""
        for counter, key in ((self._open_of_listener, listener), (self._open_of_ip, plain(ip))):
            counter[key] -= 1
            if counter[key] <= 0:
                del counter[key]

    # --- asking ----------------------------------------------------------------------------------------

    def listener_is_full(self, listener: str) -> bool:
        """Whether a listener has as many connections as its own max.connections allows."""
        own = self._of_listener(broker_network.MAX_CONNECTIONS, listener)
        return own is not None and self._open_of_listener[listener] >= own

    def refusal(self, ip: str) -> str | None:
        """Why an address may not open another connection; None when it may."""
        address = plain(ip)
        allowed = self._overrides.get(address, self._per_ip_max)
        if self._open_of_ip[address] < allowed:
            return None
        return (
            f"{allowed} connections from {address} are open, which is all that max.connections.per.ip allows"
        )

    def count_new(self, ip: str) -> int:
        """Count a new connection against its address's rate; returns for how long to hold it before closing it, in ms.

        0 accepts the connection. A connection that is not accepted is not counted.
        """
        if not self._quotas.limits(Quota.CONNECTION):
            return 0
        use = Use(Quota.CONNECTION, 1, int(self._clock.monotonic_ms()), ip=plain(ip))
        wait_ms = self._quotas.record(use)
        if wait_ms:
            self._quotas.unrecord(use)
        return wait_ms

    def count_accepted(self, listener: str) -> int:
        """Count a new connection against the rates of the broker and of its listener; for how long to accept none, in ms."""
        now_ms = int(self._clock.monotonic_ms())
        rate = broker_network.MAX_CONNECTION_CREATION_RATE
        wait_ms = self._rest_ms(WHOLE_BROKER, self._config.get(rate), now_ms)
        own = self._of_listener(rate, listener)
        return wait_ms if own is None else max(wait_ms, self._rest_ms(listener, own, now_ms))

    def _rest_ms(self, whose: str, limit: int, now_ms: int) -> int:
        if limit >= broker_network.MAX_CONNECTION_CREATION_RATE.default:
            return 0
        windows = self._config.get(broker_replication.QUOTA_WINDOW_NUM)
        window_ms = self._config.get(broker_replication.QUOTA_WINDOW_SIZE_SECONDS) * 1000
        rates = self._rates.get(whose)
        if rates is None:
            rates = self._rates[whose] = RateWindows(windows, window_ms)
        rates.add(1, now_ms)
        return rates.wait_ms(limit, now_ms, window_ms)

    def _of_listener(self, option: Option[int], listener: str) -> int | None:
        text = self._config.texts(f"listener.name.{listener.lower()}.{option.name}")
        return None if text is None else option.parse(text)


def plain(ip: str) -> str:
    """An address without the ::ffff: prefix that an IPv4 peer has on a dual-stack socket."""
    return ip.removeprefix(V4_IN_V6)


def same_host(one: str, other: str) -> bool:
    """Whether two addresses of peers are one."""
    return plain(one) == plain(other)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
