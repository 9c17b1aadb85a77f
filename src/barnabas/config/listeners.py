"""Listener addresses, from `listeners`, `advertised.listeners` and the security protocol map."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.config.option import refused


class Listener(NamedTuple):
    """One address. host: "" means every interface. port: 0 means any free port.

    security_protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
    """

    name: str
    host: str
    port: int
    security_protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_protocol_map(text: str) -> dict[str, str]:
    """NAME:PROTOCOL,NAME:PROTOCOL as a dict, with names and protocols in upper case."""
    pairs = (item.strip().partition(":") for item in text.split(",") if item.strip())
    return {name.strip().upper(): protocol.strip().upper() for name, _, protocol in pairs}


def parse_listeners(option: str, items: tuple[str, ...], protocols: dict[str, str]) -> tuple[Listener, ...]:
    """The listeners in a list that has passed the option's check.

    Raises ConfigError if a name has no security protocol.
    """
    listeners: list[Listener] = []
    for item in items:
        name, _, address = item.partition("://")
        host, _, port = address.rpartition(":")
        protocol = protocols.get(name.upper())
        if protocol is None:
            why = f"listener {name!r} has no security protocol; add {name}:PLAINTEXT (or another)"
            raise refused(option, item, f"{why} to listener.security.protocol.map")
        listeners.append(Listener(name.upper(), host.strip("[]"), int(port), protocol))
    return tuple(listeners)
