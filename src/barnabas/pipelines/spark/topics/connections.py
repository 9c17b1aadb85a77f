"""The clients that the tasks of a worker process share."""

from __future__ import annotations

from barnabas.client.blocking import BlockingClient
from barnabas.client.options import ClientOptions

_clients: dict[ClientOptions, BlockingClient] = {}


def shared_client(options: ClientOptions) -> BlockingClient:
    """This process's client for a cluster. Spark uses a Python worker for many tasks, one after the other, so
    connections are kept between tasks."""
    client = _clients.get(options)
    if client is None:
        client = _clients[options] = BlockingClient(options)
    return client
