"""`barnabas cluster start | stop | status | kill | start-broker`: a cluster on this machine, ZooKeeper included."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from barnabas.cli.clusters.cluster import app
from barnabas.local.cluster import LocalCluster, Settings, options_from, read_settings
from barnabas.local.processes import WATCH_SECONDS, await_end
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, CliError
from barnabas.terminal.options import AsJson
from barnabas.terminal.output import count_of, note, print_json, print_table, summarize
from barnabas.terminal.runner import example
from barnabas.terminal.signals import ending

DEFAULT_PORT: Final = 9092
DEFAULT_ZOOKEEPER_PORT: Final = 2181
ZOOKEEPER_PORT_DISTANCE: Final = 100
KILL_TIMEOUT_S: Final = 30.0

Folder = Annotated[Path, typer.Option("--data", metavar="DIR", help="The cluster's folder.")]
Number = Annotated[int, typer.Argument(metavar="N", help="The number of the broker, from 1.")]


@app.command(
    epilog=example(
        "barnabas cluster start --brokers 3 --data /tmp/cluster",
        "barnabas cluster start --brokers 3 --data /tmp/cluster --port 19092 --racks a,b,c",
    )
)
def start(
    data: Folder,
    brokers: Annotated[int, typer.Option(metavar="N", help="How many brokers.")] = 3,
    port: Annotated[
        int, typer.Option(metavar="PORT", help="Port of broker 1; the others have the next ones.")
    ] = DEFAULT_PORT,
    racks: Annotated[
        str, typer.Option(metavar="A,B,C", help="The rack of each broker.", show_default=False)
    ] = "",
    zookeepers: Annotated[
        int, typer.Option(metavar="N", help="Servers of the ZooKeeper ensemble: 1, 3 or 5.")
    ] = 1,
    zookeeper_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="Port of the first ZooKeeper. Default: 2181 if --port is 9092, else 100 above --port.",
            show_default=False,
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "-o", "--option", metavar="NAME=VALUE", help="One option of every broker; may be repeated."
        ),
    ] = None,
) -> int:
    """Start ZooKeeper and brokers over DIR, in the foreground: `ready` once all serve, Ctrl-C or SIGTERM stops all."""
    if zookeeper_port is None:
        zookeeper_port = DEFAULT_ZOOKEEPER_PORT if port == DEFAULT_PORT else port + ZOOKEEPER_PORT_DISTANCE
    names = tuple(rack.strip() for rack in racks.split(",")) if racks else ()
    settings = Settings(brokers, port, zookeeper_port, zookeepers, names, options_from(option or []))
    settings.check()
    cluster = LocalCluster(data.expanduser().absolute(), settings)
    if cluster.running():
        raise CliError(
            f"a cluster runs over {cluster.folder}; `barnabas cluster stop --data {cluster.folder}` stops it"
        )
    cluster.prepare()
    cluster.start()
    return stay(
        cluster,
        f"ready: {count_of(brokers, 'broker')} at {settings.bootstrap}, ZooKeeper at {settings.zookeeper_connect}, "
        f"folder {cluster.folder}",
    )


def stay(cluster: LocalCluster, ready: str) -> int:
    """Print `ready`, and report processes that end, until a signal asks to stop them all or another command has stopped
    them."""
    asked: list[bool] = []
    with ending(lambda: asked.append(True)):
        before = cluster.running()  # before `ready`: whoever reads it may end a process at once
        print(ready, flush=True)
        while not asked and before:
            time.sleep(WATCH_SECONDS)
            now = cluster.running()
            for name in before.keys() - now.keys():
                note(f"{name} has ended (process {before[name]})")
            for name in now.keys() - before.keys():
                note(f"{name} runs as process {now[name]}")
            before = now
        for line in cluster.stop():
            summarize(line)
    return EXIT_OK


@app.command(epilog=example("barnabas cluster stop --data /tmp/cluster"))
def stop(data: Folder, json: AsJson = False) -> int:
    """Stop a cluster on this machine: its brokers one after the other, then ZooKeeper."""
    cluster = opened(data)
    lines = []
    for line in cluster.stop():
        lines.append(line)
        summarize(line)
    if not lines:
        raise CliError(f"no process of the cluster in {cluster.folder} runs")
    if json:
        print_json(lines)
    return EXIT_OK


@app.command(epilog=example("barnabas cluster status --data /tmp/cluster"))
def status(data: Folder, json: AsJson = False) -> int:
    """Show which processes of a cluster on this machine run. Exit code 1: not all of them."""
    cluster = opened(data)
    pids = cluster.running()
    settings = cluster.settings
    rows = [
        *zip(cluster.zookeepers, settings.zookeeper_ports, strict=True),
        *zip(cluster.brokers, settings.broker_ports, strict=True),
    ]
    if json:
        print_json(
            [
                {"name": member.name, "port": port, "pid": pids.get(member.name), "log": str(member.log)}
                for member, port in rows
            ]
        )
    else:
        print_table(
            ("NAME", "PORT", "PROCESS", "LOG"),
            [(member.name, port, pids.get(member.name), member.log) for member, port in rows],
        )
    return EXIT_OK if len(pids) == len(rows) else EXIT_FAILED


@app.command(epilog=example("barnabas cluster kill 1 --data /tmp/cluster"))
def kill(number: Number, data: Folder, json: AsJson = False) -> int:
    """Kill a broker with SIGKILL, as a power cut would."""
    cluster = opened(data)
    member = cluster.broker(number)
    pid = cluster.running().get(member.name)
    if pid is None:
        raise CliError(f"{member.name} does not run")
    os.kill(pid, signal.SIGKILL)
    if not await_end(member, pid, KILL_TIMEOUT_S):
        raise CliError(f"{member.name} (process {pid}) still runs {KILL_TIMEOUT_S:g} s after SIGKILL")
    summarize(f"killed {member.name} (process {pid})")
    if json:
        print_json({"name": member.name, "pid": pid, "result": "killed"})
    return EXIT_OK


@app.command(epilog=example("barnabas cluster start-broker 1 --data /tmp/cluster"))
def start_broker(number: Number, data: Folder, json: AsJson = False) -> int:
    """Start one broker of a cluster again, in the background."""
    cluster = opened(data)
    cluster.start_broker(number)
    summarize(
        f"{cluster.broker(number).name} serves at localhost:{cluster.settings.broker_ports[number - 1]}"
    )
    return EXIT_OK


def opened(data: Path) -> LocalCluster:
    """The cluster that was last started in the folder. Raises CliError."""
    folder = data.expanduser().absolute()
    return LocalCluster(folder, read_settings(folder))
