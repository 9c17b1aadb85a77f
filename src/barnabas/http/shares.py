"""Divides what a service has among the addresses of its clients. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


def address_of(host: str) -> str:
    """What counts as one client: an IPv4 address, or the /64 network of an IPv6 address, which one host may fill."""
    if ":" not in host or "." in host:
        return host
    import ipaddress

    try:
        return str(ipaddress.ip_network((host.partition("%")[0], 64), strict=False))
    except ValueError:
        return host


@dataclass(slots=True)
class Shares:
    """`total` units. Half of them are for whoever comes; of the other half, an address gets at most `share`.

    So one address alone (a balancer's, perhaps) may use half, and each other address then still gets its share.
    """

    total: int
    share: int
    used: int = 0
    _by_address: Counter[str] = field(default_factory=Counter)

    def take(self, address: str, units: int = 1) -> bool:
        """Take units if there are enough for this address; whether that was done."""
        after = self.used + units
        if after > self.total or (after > self.total // 2 and self._by_address[address] + units > self.share):
            return False
        self.used = after
        self._by_address[address] += units
        return True

    def give_back(self, address: str, units: int = 1) -> None:
        """Give back units that were taken."""
        self.used -= units
        self._by_address[address] -= units
        if not self._by_address[address]:
            del self._by_address[address]
