"""Clients and lookouts that all feeds of a process share."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from barnabas.client.blocking import BlockingClient
from barnabas.client.lookout import Lookout
from barnabas.client.options import ClientOptions

KEPT_MAX: Final = 4
"""How many idle clients for the same cluster are kept. As many as are needed may be in use."""

_lock = threading.Lock()
_idle: dict[ClientOptions, list[BlockingClient]] = defaultdict(list)
_lookouts: dict[tuple[ClientOptions, bool], Lookout] = {}


@contextmanager
def lent_client(options: ClientOptions) -> Iterator[BlockingClient]:
    """A client that nobody else uses meanwhile; a hundred queries need not keep a hundred connections."""
    with _lock:
        free = _idle[options]
        client = free.pop() if free else None
    client = client or BlockingClient(options)
    try:
        yield client
    except BaseException:
        client.close()
        raise
    with _lock:
        kept = len(free) < KEPT_MAX
        if kept:
            free.append(client)
    if not kept:
        client.close()


def lookout(options: ClientOptions, *, read_committed: bool) -> Lookout:
    """The lookout for a cluster, which lives as long as the process."""
    with _lock:
        shared_lookout = _lookouts.get((options, read_committed))
        if shared_lookout is None:
            shared_lookout = _lookouts[options, read_committed] = Lookout(
                options, read_committed=read_committed
            )
        return shared_lookout
