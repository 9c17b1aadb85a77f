"""`barnabas start --workers N`: derives the options of each worker from those of the first."""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from barnabas.config import broker_identity, broker_zookeeper

if TYPE_CHECKING:
    from barnabas.config.listeners import Listener
    from barnabas.config.loader import BrokerConfig

WORKERS_MAX: Final = 64
SOCKET_FILE: Final = "znodes.sock"
ALONE: Final = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
"""If all brokers are on one machine, more replicas of the internal topics would not protect from anything."""


def shared_options(config: BrokerConfig) -> dict[str, str]:
    """Options that all workers need, unless they are set: the machine's rack and, without ZooKeeper, one replica."""
    wanted = {"broker.rack": socket.gethostname()}
    if not config.get(broker_zookeeper.ZOOKEEPER_CONNECT):
        wanted |= ALONE
    return {name: value for name, value in wanted.items() if config.texts(name) is None}


def first_options(config: BrokerConfig) -> dict[str, str]:
    """Options of the first worker: it serves the metadata if there is no ZooKeeper."""
    if config.get(broker_zookeeper.ZOOKEEPER_CONNECT):
        return {}
    return {broker_zookeeper.ZNODES_SERVE.name: str(config.log_dirs[0] / SOCKET_FILE)}


def other_options(config: BrokerConfig, number: int) -> dict[str, str]:
    """Options of worker 2, 3 and so on: the next ids and ports, folders of its own inside those of the first."""
    distance = number - 1
    options = {
        broker_identity.NODE_ID.name: str(config.node_id + distance),
        "broker.id": str(config.node_id + distance),
        "listeners": moved(config.listeners, distance),
        "log.dirs": ",".join(str(folder / f"worker{number}") for folder in config.log_dirs),
    }
    if config.advertised_listeners:
        options["advertised.listeners"] = moved(config.advertised_listeners, distance)
    if not config.get(broker_zookeeper.ZOOKEEPER_CONNECT):
        options[broker_zookeeper.ZNODES_CONNECT.name] = str(config.log_dirs[0] / SOCKET_FILE)
    return options


def moved(listeners: tuple[Listener, ...], distance: int) -> str:
    """Listeners with their ports raised by so much; port 0 is kept, since the system chooses the port."""
    return ",".join(
        str(listener._replace(port=listener.port and listener.port + distance)) for listener in listeners
    )


def command_for(options: argparse.Namespace, overrides: Mapping[str, str], number: int) -> list[str]:
    """What starts a worker: the same file, with these options over it."""
    command = [sys.executable, "-m", "barnabas", "start", "--worker"]
    if options.config is not None:
        command += ["--config", str(options.config)]
    for name, value in overrides.items():
        command += ["-o", f"{name}={value}"]
    command += ["--log-level", options.log_level, "--log-format", options.log_format]
    if options.log_file is not None:
        command += ["--log-file", f"{options.log_file}.worker{number}"]
    return command
