"""zookeeper-server-start, zookeeper-server-stop and zkServer.sh: the commands that books use before they start a
broker. With Java and PySpark's JAR files, zookeeper-server-start runs a real server with the given
zookeeper.properties. Without them it says that a single broker needs none, and ends successfully.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from barnabas.kafka_tools.servers.server_start import log_file
from barnabas.kafka_tools.shared.common import read_properties, say
from barnabas.local import zookeeper as servers
from barnabas.local.process_list import processes
from barnabas.local.processes import Member, Started
from barnabas.terminal.ending import end_process
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, CliError
from barnabas.terminal.signals import ending

DEFAULT_PORT: Final = 2181
CHECK_SECONDS: Final = 0.2
TEXT: Final = """\
{name}: one broker needs no ZooKeeper: it keeps the cluster's metadata itself. Go on with the next step, for example
  kafka-server-start config/server.properties
without zookeeper.connect in that file. `barnabas cluster start` runs brokers with a ZooKeeper (docs/cluster.md).
"""


def script() -> None:
    """Entry point."""
    name = Path(sys.argv[0]).name.removesuffix(".sh")
    end_process(name, lambda: main(name, sys.argv[1:]))


def main(name: str, arguments: Sequence[str]) -> int:
    """Run one of the three; its exit code."""
    words = list(arguments)
    if name == "zookeeper-server-stop":
        return stop()
    daemon = words[:1] == ["-daemon"]
    config = Path(words[daemon]) if len(words) > daemon else None
    if name != "zookeeper-server-start" or config is None:
        print(TEXT.format(name=name), end="")
        return EXIT_OK
    if not config.is_file():
        print(f"{name}: there is no file {config} (`barnabas config samples DIR` writes it)", file=sys.stderr)
        return EXIT_FAILED
    try:
        command = servers.command_for(config.absolute())
    except CliError as error:
        print(TEXT.format(name=name), end="")
        print(f"{name}: {error}", file=sys.stderr)
        return EXIT_OK
    return start(name, config.absolute(), command, daemon)


def start(name: str, config: Path, command: Sequence[str], daemon: bool) -> int:
    """Run the server, in the foreground unless it is to be a daemon; a line once it serves."""
    properties = read_properties(str(config))
    port = int(properties.get("clientPort") or DEFAULT_PORT)
    host = properties.get("clientPortAddress") or servers.HOST
    log = log_file().with_name("zookeeper.out")
    try:
        servers.require_free([port], host)
        server = Started(Member("ZooKeeper", config, log), command)
        server.await_ready(lambda _: servers.serves(port, host), servers.START_TIMEOUT_S)
    except CliError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return EXIT_FAILED
    print(f"ready: ZooKeeper serves at {host}:{port}; its log: {log}", flush=True)
    if daemon:
        return EXIT_OK
    with ending(server.process.terminate):  # a signal to this process ends the server, too
        code = server.process.wait()
    return EXIT_OK if code in (-signal.SIGTERM, 128 + signal.SIGTERM) else code


def stop() -> int:
    """SIGTERM to the ZooKeeper servers that this user runs on this machine, and wait until they have ended."""
    pids = [pid for pid, words in processes() if servers.MAIN_CLASS in words]
    if not pids:
        say("No zookeeper server to stop")
        return EXIT_FAILED
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    while {pid for pid, words in processes() if servers.MAIN_CLASS in words} & set(pids):
        time.sleep(CHECK_SECONDS)
    return EXIT_OK
