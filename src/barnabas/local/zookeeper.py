"""ZooKeeper servers on this machine, run from the JAR files that PySpark includes."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from barnabas.extras import how_to_install
from barnabas.local.processes import Member, Started
from barnabas.terminal.errors import CliError

MAIN_CLASS: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
HOST: Final = "127.0.0.1"
START_TIMEOUT_S: Final = 120.0
PEER_PORT_DISTANCE: Final = 10
ELECTION_PORT_DISTANCE: Final = 20
CONFIG: Final = """\
# Written by each start.
dataDir={data}
clientPort={port}
clientPortAddress={host}
tickTime=500
maxSessionTimeout=60000
initLimit=20
syncLimit=10
maxClientCnxns=0
admin.enableServer=false
autopurge.purgeInterval=1
4lw.commands.whitelist=srvr,ruok,stat,mntr,conf,dump
"""


def command_for(config: Path) -> list[str]:
    """The command that runs a server with this configuration file. Raises CliError when Java or the JAR files are
    missing.
    """
    java = shutil.which("java")
    if java is None:
        raise CliError(
            "ZooKeeper needs Java, and there is no `java` on the PATH; install a JRE, version 17 or newer"
        )
    spec = find_spec("pyspark")
    jars = Path(spec.origin).parent / "jars" if spec is not None and spec.origin else None
    if jars is None or not list(jars.glob("zookeeper-3*.jar")):
        raise CliError(
            f"ZooKeeper's server comes with PySpark, which is missing: {how_to_install('pipelines')}"
        )
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"]
    return [java, *options, "-cp", f"{jars}/*", MAIN_CLASS, str(config)]


def members(folder: Path, servers: int) -> list[Member]:
    """The servers of an ensemble over a folder."""
    names = [f"zookeeper {number}" if servers > 1 else "zookeeper" for number in range(1, servers + 1)]
    folders = [folder / f"zookeeper-{number}" for number in range(1, servers + 1)]
    return [
        Member(name, place / "zoo.cfg", place / "zookeeper.log")
        for name, place in zip(names, folders, strict=True)
    ]


def write_configs(ensemble: Sequence[Member], port: int, host: str = HOST) -> None:
    """The configuration of each server, for clients on `port` and the ports after it. host: where clients are served; the
    servers of an ensemble, all on this machine, talk to each other over the loopback address."""
    peers = "".join(
        f"server.{number}={HOST}:{port + PEER_PORT_DISTANCE + number}:{port + ELECTION_PORT_DISTANCE + number}\n"
        for number in range(1, len(ensemble) + 1)
    )
    for number, member in enumerate(ensemble, 1):
        data = member.config.parent / "data"
        data.mkdir(parents=True, exist_ok=True)
        text = CONFIG.format(data=data, port=port + number - 1, host=host)
        if len(ensemble) > 1:
            (data / "myid").write_text(f"{number}\n")
            text += peers
        member.config.write_text(text)


def start(ensemble: Sequence[Member], port: int, host: str = HOST) -> list[Started]:
    """Start all servers and wait until they serve. Raises CliError; none is left running then."""
    started: list[Started] = []
    try:
        started += [Started(member, command_for(member.config)) for member in ensemble]
        for number, server in enumerate(started):
            server.await_ready(lambda _, at=port + number: serves(at, host), START_TIMEOUT_S)  # type: ignore[misc]
    except BaseException:
        for server in started:
            server.process.kill()
            server.process.wait()
        raise
    return started


def serves(port: int, host: str = HOST) -> bool:
    """Whether a ZooKeeper server answers there and, in an ensemble, has a leader."""
    try:
        with socket.create_connection((host, port), timeout=1) as connection:
            connection.sendall(b"srvr")
            answer = b""
            while part := connection.recv(4096):
                answer += part
    except OSError:
        return False
    return b"Mode:" in answer


def require_free(ports: Sequence[int], host: str = "localhost") -> None:
    """Raises CliError when something listens on one of the ports."""
    for port in ports:
        try:
            socket.create_connection((host, port), timeout=1).close()
        except OSError:
            continue
        raise CliError(f"port {port} is in use; choose others with --port and --zookeeper-port")


def require_own(host: str) -> None:
    """Raises CliError unless a server of this machine can listen on the address."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(address)
    except OSError as error:
        why = error.strerror or str(error)
        raise CliError(f"--host {host}: this machine cannot listen there: {why}") from None
