"""Hosts in zones on one machine, and links between them that can be cut, to test how a cluster reacts.

Each host is a network namespace of Linux, each zone a bridge, and one switch joins the zones. Packets that are sent
over a cut link vanish silently, as between data centres: there is no "connection refused".

    with Network(["a", "b", "c"]) as network:
        address = network.add_host("broker1", "a")
        subprocess.Popen(network.command("broker1", ["barnabas", "start", ...]))
        network.cut_zone("a")

Needs `ip`, `nsenter` and the right to change the network. `unshare --net --mount` gives a program a network of its
own; with `--user --map-root-user` every user may do that.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

NOBODY: Final = "02:00:00:00:ff:ff"
"""The hardware address for frames that no host is to receive."""
FOLDER: Final = Path("/run/netns")
HOSTS_MAX: Final = 200
NETWORK_NUMBERS: Final = itertools.count()
"""Numbers the networks of this process, so that each has names of its own."""
NAME_MAX: Final = 6
"""Characters of the name of a zone: names of interfaces have at most 15."""


class NetworkError(Exception):
    """A change of the network failed; the message says why."""


class Host(NamedTuple):
    """One network namespace."""

    namespace: str
    zone: str
    address: str
    hardware: str


class Network:
    """Zones with hosts, and the links that are cut. `close` removes everything; the caller has to end the programs on
    the hosts.
    """

    def __init__(self, zones: Iterable[str], subnet: str = "") -> None:
        """subnet: the first three numbers of all addresses; by default from 198.18.0.0/16, which is reserved for
        tests. The machine itself has number 254. Raises NetworkError.
        """
        number = next(NETWORK_NUMBERS)
        self._mark = f"{os.getpid() & 0xFFFF:x}{number}"
        self.subnet = subnet or f"198.18.{(os.getpid() + number) % 256}"
        self.own_address = f"{self.subnet}.254"
        self.hosts: dict[str, Host] = {}
        self.zones = list(zones)
        for zone in self.zones:
            if not 1 <= len(zone) <= NAME_MAX or not zone.isalnum():
                raise NetworkError(f"zone {zone!r}: a name has 1 to {NAME_MAX} letters and digits")
        self._switch = f"s{self._mark}"
        self._numbers = itertools.count(1)
        try:
            _ip(f"link add {self._switch} address 02:00:00:00:00:fe type bridge")
            _ip(f"addr add {self.own_address}/24 dev {self._switch}", f"link set {self._switch} up")
            for zone in self.zones:
                self._add_zone(zone)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _add_zone(self, zone: str) -> None:
        bridge, up, down = self._bridge(zone), f"u{self._mark}{zone}", f"d{self._mark}{zone}"
        _ip(
            f"link add {bridge} type bridge",
            f"link add {up} type veth peer name {down}",
            f"link set {up} master {bridge}",
            f"link set {down} master {self._switch}",
            *(f"link set {device} up" for device in (bridge, up, down)),
        )

    def _bridge(self, zone: str) -> str:
        return f"z{self._mark}{zone}"

    def add_host(self, name: str, zone: str) -> str:
        """Add a host to a zone; returns its address. Raises NetworkError."""
        number = next(self._numbers)
        if number > HOSTS_MAX or name in self.hosts or zone not in self.zones:
            raise NetworkError(
                f"host {name!r} in zone {zone!r}: at most {HOSTS_MAX} hosts, each with a name of its own"
            )
        host = Host(f"{self._mark}-{name}", zone, f"{self.subnet}.{number}", f"02:00:00:00:00:{number:02x}")
        port = f"h{self._mark}{number}"
        _ip(f"netns add {host.namespace}")
        self.hosts[name] = host
        _ip(
            f"link add {port} type veth peer name eth0 address {host.hardware} netns {host.namespace}",
            f"link set {port} master {self._bridge(zone)} up",
        )
        _ip("link set lo up", f"addr add {host.address}/24 dev eth0", "link set eth0 up", inside=host)
        # Fixed hardware addresses: an ARP request without an answer would be reported as "no route to host".
        own = f"neigh replace {self.own_address} lladdr 02:00:00:00:00:fe nud permanent dev eth0"
        _ip(own, *(_hears(other, other.hardware) for other in self.hosts.values()), inside=host)
        _ip(f"neigh replace {host.address} lladdr {host.hardware} nud permanent dev {self._switch}")
        for other in self.hosts.values():
            _ip(_hears(host, host.hardware), inside=other)
        return host.address

    def command(self, name: str, words: Sequence[str]) -> list[str]:
        """The command that runs `words` on a host."""
        return ["nsenter", f"--net={FOLDER / self.hosts[name].namespace}", *words]

    def cut_zone(self, zone: str) -> None:
        """From now on nothing passes between the zone and the other zones. Raises NetworkError."""
        _ip(f"link set u{self._mark}{zone} down")

    def join_zone(self, zone: str) -> None:
        """The opposite of `cut_zone`. Raises NetworkError."""
        _ip(f"link set u{self._mark}{zone} up")

    def part(self, some: Iterable[str], others: Iterable[str]) -> None:
        """From now on the hosts of one list cannot reach those of the other list; all can still reach every other
        host. Raises NetworkError.
        """
        self._set(some, others, lambda _: NOBODY)

    def mend(self, some: Iterable[str], others: Iterable[str]) -> None:
        """The opposite of `part`. Raises NetworkError."""
        self._set(some, others, lambda host: host.hardware)

    def _set(self, some: Iterable[str], others: Iterable[str], hardware: Callable[[Host], str]) -> None:
        for name, other_name in itertools.product(some, others):
            host, other = self.hosts[name], self.hosts[other_name]
            _ip(_hears(other, hardware(other)), inside=host)
            _ip(_hears(host, hardware(host)), inside=other)

    def in_zone(self, zone: str) -> list[str]:
        """The names of the hosts of a zone."""
        return [name for name, host in self.hosts.items() if host.zone == zone]

    def close(self) -> None:
        """Remove everything. Interfaces go with their namespaces and their other ends."""
        for host in self.hosts.values():
            _ip_quietly(f"netns del {host.namespace}")
        self.hosts.clear()
        for zone in self.zones:
            _ip_quietly(f"link del u{self._mark}{zone}")
            _ip_quietly(f"link del {self._bridge(zone)}")
        _ip_quietly(f"link del {self._switch}")


def _hears(other: Host, hardware: str) -> str:
    return f"neigh replace {other.address} lladdr {hardware} nud permanent dev eth0"


def _ip(*commands: str, inside: Host | None = None) -> None:
    """Run commands of `ip`, in a namespace. Raises NetworkError."""
    words = ["ip", *(["-n", inside.namespace] if inside else []), "-batch", "-"]
    try:
        done = subprocess.run(
            words, input="\n".join(commands) + "\n", capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise NetworkError(f"`ip` cannot be run ({error}); it comes with the package iproute2") from None
    if done.returncode:
        why = " ".join(done.stderr.split())
        raise NetworkError(f"the network could not be set up: `ip {commands[0]}` reports {why!r}")


def _ip_quietly(command: str) -> None:
    subprocess.run(["ip", *command.split()], capture_output=True, check=False)
