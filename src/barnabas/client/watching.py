"""Waits for records behind known positions: a fetch that the broker holds back until there is something.

    watch = Watch(client.cluster, read_committed=False)
    while not watch.wait({("events", 0): 120}, seconds=1.0):
        ...

Each leader of the partitions has one request under way, on a connection that nothing else uses meanwhile. Its answer only
says that there may be news: it may be about positions of an earlier call.
"""

from __future__ import annotations

import logging
import select
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final

from barnabas.client.cluster import Cluster
from barnabas.client.connection import BrokerConnection
from barnabas.client.errors import ClientError
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.1
"""How often `stopped` is asked."""


class Watch:
    """Not thread-safe, as little as the cluster."""

    def __init__(self, cluster: Cluster, *, read_committed: bool) -> None:
        self._cluster = cluster
        self._read_committed = read_committed
        self._asked: dict[int, BrokerConnection] = {}

    def wait(
        self,
        positions: Mapping[tuple[str, int], int],
        seconds: float,
        stopped: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Whether there may be records at or after the positions. Returns False after `seconds`, when `stopped` says so, and
        when a broker cannot be asked; the next request of another kind to that broker fails and says why."""
        give_up = time.monotonic() + seconds
        try:
            while (left := give_up - time.monotonic()) > 0 and not stopped():
                self._ask(
                    positions, left
                )  # again of a broker that had nothing to tell, for an earlier call perhaps
                if not self._asked:
                    return False
                if self._heard(min(left, LOOK_SECONDS)):
                    return True
        except (ClientError, OSError, ValueError) as error:  # ValueError: somebody closed the connection
            log.debug("nothing can be waited for: %s", error)
            self._forget(list(self._asked))
        return False

    def _ask(self, positions: Mapping[tuple[str, int], int], seconds: float) -> None:
        by_leader: dict[int, dict[str, list[FetchPartition]]] = defaultdict(lambda: defaultdict(list))
        for (topic, partition), offset in positions.items():
            row = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1)
            by_leader[self._cluster.leader(topic, partition)][topic].append(row)
        self._forget([node for node in self._asked if node not in by_leader])
        for node, topics in by_leader.items():
            if node in self._asked:
                continue  # it answers as soon as there is more than what was known then
            request = FetchRequest(
                max_wait_ms=int(seconds * 1000),
                min_bytes=1,
                max_bytes=1,  # a broker sends one batch all the same
                isolation_level=int(self._read_committed),
                session_epoch=-1,
                topics=[FetchTopic(topic=name, partitions=rows) for name, rows in topics.items()],
            )
            connection = self._cluster.node(node)
            self._asked[node] = connection
            connection.send(request, FetchResponse)

    def _heard(self, seconds: float) -> bool:
        """Whether a broker told of something, errors included."""
        by_socket = {connection.fileno(): node for node, connection in self._asked.items()}
        ready, _, _ = select.select(list(by_socket), [], [], seconds)
        news = False
        for number in ready:
            connection = self._asked.pop(by_socket[number])
            try:
                answer = connection.receive()
            except ClientError:
                self._cluster.forget(connection)
                raise
            rows = [row for topic in answer.responses for row in topic.partitions]
            news |= bool(answer.error_code) or any(row.error_code or row.records for row in rows)
        return news

    def _forget(self, nodes: list[int]) -> None:
        for node in nodes:
            self._cluster.forget(self._asked.pop(node))
