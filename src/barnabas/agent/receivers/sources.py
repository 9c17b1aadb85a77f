"""What the configuration says of an input that is no file, and the receiver that is made of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from barnabas.agent.receivers.receiver import Receiver, Tls
from barnabas.agent.spool import Spool

SPOOL_MB: Final = 1024


@dataclass(frozen=True, slots=True)
class Source:
    """kind: the entry in the configuration. udp, tcp, listen, grpc: HOST:PORT. units, folder, at_end: of the journal."""

    kind: str
    udp: str = ""
    tcp: str = ""
    listen: str = ""
    grpc: str = ""
    tls: Tls | None = None
    units: tuple[str, ...] = ()
    folder: str = ""
    at_end: bool = False
    spool_mb: int = SPOOL_MB

    def spool(self, state: Path, name: str) -> Spool:
        """Where its events wait."""
        return Spool(state / "spool" / name, self.spool_mb << 20)

    def receiver(self, spool: Spool, who: str) -> Receiver:
        """What receives; it is not started yet."""
        match self.kind:
            case "syslog":
                from barnabas.agent.receivers.syslog import Syslog

                return Syslog(spool, who, udp=self.udp, tcp=self.tcp, tls=self.tls)
            case "lumberjack":
                from barnabas.agent.receivers.lumberjack import Lumberjack

                return Lumberjack(spool, who, listen=self.listen, tls=self.tls)
            case "journald":
                from barnabas.agent.receivers.journal import Journal

                return Journal(spool, who, units=self.units, folder=self.folder, at_end=self.at_end)
            case "otlp":
                from barnabas.agent.receivers.otlp import Otlp

                return Otlp(spool, who, listen=self.listen, grpc=self.grpc, tls=self.tls)
            case _:
                from barnabas.agent.receivers.standard_input import StandardInput

                return StandardInput(spool, who)
