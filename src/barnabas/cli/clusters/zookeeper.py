"""`barnabas zookeeper`: a real ZooKeeper server, or an ensemble, on this machine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Final

import typer

from barnabas.local import zookeeper as servers
from barnabas.local.processes import WATCH_SECONDS, running, stop
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, CliError
from barnabas.terminal.output import note, summarize
from barnabas.terminal.runner import example, new_app
from barnabas.terminal.signals import ending

STOP_TIMEOUT_S: Final = 30.0

app = new_app("Run ZooKeeper on this machine.")


@app.callback()
def zookeeper() -> None:
    """Run ZooKeeper on this machine, from the JAR files that PySpark includes."""


@app.command(
    epilog=example(
        "barnabas zookeeper start --data /tmp/zookeeper",
        "barnabas zookeeper start --data /tmp/zookeeper --servers 3 --port 2181",
        "barnabas zookeeper start --data /tmp/zookeeper --host 10.0.0.5",
    )
)
def start(
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="The folder of the servers.")],
    port: Annotated[
        int, typer.Option(metavar="PORT", help="Port of the first server; others have the next ones.")
    ] = 2181,
    host: Annotated[
        str,
        typer.Option(
            metavar="HOST",
            help="Address of this machine on which clients are served; 0.0.0.0 for all of them. There is no login: only "
            "for networks that you trust.",
        ),
    ] = servers.HOST,
    count: Annotated[
        int, typer.Option("--servers", metavar="N", help="Servers of the ensemble: 1, 3 or 5.")
    ] = 1,
) -> int:
    """Start ZooKeeper in the foreground: `ready` once it serves; Ctrl-C or SIGTERM stops it."""
    if count not in (1, 3, 5):
        raise CliError(f"--servers {count}: an ensemble has 1, 3 or 5 servers")
    if not 1 <= port <= 65_535 - servers.ELECTION_PORT_DISTANCE - count:
        raise CliError(f"--port {port} leaves no room for the ports of the servers")
    ensemble = servers.members(data.expanduser().absolute(), count)
    if running(ensemble):
        raise CliError(f"a ZooKeeper runs in {data} already")
    servers.require_own(host)
    servers.require_free(range(port, port + count), host)
    servers.write_configs(ensemble, port, host)
    started = servers.start(ensemble, port, host)
    shown = f"[{host}]" if ":" in host else host
    hosts = ",".join(f"{shown}:{at}" for at in range(port, port + count))
    asked: list[bool] = []
    with ending(lambda: asked.append(True)):
        # Known before `ready` is said: whoever reads it may end a server, or this command, at once.
        before = {server.member.name: server.process.pid for server in started}
        print(f"ready: zookeeper.connect={hosts}", flush=True)
        while not asked and before:
            time.sleep(WATCH_SECONDS)
            now = running(ensemble)
            for name in before.keys() - now.keys():
                note(f"{name} has ended (process {before[name]})")
            before = now
        for member in ensemble:
            pid = running([member]).get(member.name)
            if pid is not None:
                summarize(f"{member.name} {stop(member, pid, STOP_TIMEOUT_S)}")
    return EXIT_OK if asked else EXIT_FAILED
