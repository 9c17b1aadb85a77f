"""The brokers that this user runs on this machine, found by their processes."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.cli.kafka.server_stop import is_broker, node_of, processes


class LocalBroker(NamedTuple):
    """A broker's process and the node id that its command line gives it."""

    pid: int
    node_id: str
    command: str


def brokers_here() -> list[LocalBroker]:
    """The running brokers, without those that have ended and only wait for their parent."""
    return [
        LocalBroker(pid, node_of(words), " ".join(words)) for pid, words in processes() if is_broker(words)
    ]
