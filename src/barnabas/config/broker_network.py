"""Broker options: sockets, threads, connection and request limits."""

from __future__ import annotations

import re
from typing import Final

from barnabas.config.option import INT_MAX, Mark, Mode, OptionTable

NETWORK: Final = OptionTable("Network, threads and limits")

WORKS: Final = Mark.WORKS
IGNORED: Final = Mark.IGNORED
CLUSTER: Final = Mode.CLUSTER

_PER_IP: Final = re.compile(r"\s*[^:,\s][^,]*:\d+\s*")


def per_ip_overrides(value: str) -> str | None:
    """Checks host:limit,host:limit; returns what is wrong, or None."""
    if not value or all(_PER_IP.fullmatch(item) for item in value.split(",")):
        return None
    return "must be a list of host:limit, for example localhost:200,10.0.0.7:20"


NUM_NETWORK_THREADS: Final = NETWORK.integer(
    "num.network.threads",
    3,
    "Kafka's socket threads; one event loop does their work here.",
    lo=1,
    mode=CLUSTER,
)
NUM_IO_THREADS: Final = NETWORK.integer(
    "num.io.threads",
    8,
    "Threads for work that may block: flushes, recovery, large reads.",
    lo=1,
    mode=CLUSTER,
)
BACKGROUND_THREADS: Final = NETWORK.integer(
    "background.threads",
    10,
    "Kafka's threads for house-keeping; timers do their work here.",
    lo=1,
    mode=CLUSTER,
)
NUM_REPLICA_FETCHERS: Final = NETWORK.integer(
    "num.replica.fetchers", 1, "Connections to each other broker for replication.", lo=1, mode=CLUSTER
)
NUM_RECOVERY_THREADS_PER_DATA_DIR: Final = NETWORK.integer(
    "num.recovery.threads.per.data.dir",
    2,
    "Threads per log folder that load and check logs at start.",
    lo=1,
    mode=CLUSTER,
)
NUM_REPLICA_ALTER_LOG_DIRS_THREADS: Final = NETWORK.integer_or_null(
    "num.replica.alter.log.dirs.threads",
    "Threads that move replicas between log folders; as many as there are folders when not set.",
    mark=WORKS,
)
SOCKET_REQUEST_MAX_BYTES: Final = NETWORK.integer(
    "socket.request.max.bytes",
    104_857_600,
    "Largest request; a larger one closes its connection.",
    lo=1,
    mark=WORKS,
)
SOCKET_SEND_BUFFER_BYTES: Final = NETWORK.integer(
    "socket.send.buffer.bytes",
    102_400,
    "SO_SNDBUF of client sockets; if it is not set, or -1, the system tunes it automatically.",
    lo=-1,
    mark=WORKS,
)
SOCKET_RECEIVE_BUFFER_BYTES: Final = NETWORK.integer(
    "socket.receive.buffer.bytes",
    102_400,
    "SO_RCVBUF of client sockets; if it is not set, or -1, the system tunes it automatically.",
    lo=-1,
    mark=WORKS,
)
SOCKET_LISTEN_BACKLOG_SIZE: Final = NETWORK.integer(
    "socket.listen.backlog.size", 50, "Connections that may wait to be accepted.", lo=1, mark=WORKS
)
MAX_CONNECTIONS: Final = NETWORK.integer(
    "max.connections", INT_MAX, "Open connections of the whole broker.", lo=0, mode=CLUSTER, mark=WORKS
)
MAX_CONNECTIONS_PER_IP: Final = NETWORK.integer(
    "max.connections.per.ip", INT_MAX, "Open connections from one address.", lo=0, mode=CLUSTER, mark=WORKS
)
MAX_CONNECTIONS_PER_IP_OVERRIDES: Final = NETWORK.string(
    "max.connections.per.ip.overrides",
    "",
    "Separate limits for some addresses, as host:limit,host:limit.",
    check=per_ip_overrides,
    mode=CLUSTER,
    mark=WORKS,
)
MAX_CONNECTION_CREATION_RATE: Final = NETWORK.integer(
    "max.connection.creation.rate",
    INT_MAX,
    "New connections per second of the whole broker.",
    lo=0,
    mode=CLUSTER,
    mark=WORKS,
)
CONNECTIONS_MAX_IDLE_MS: Final = NETWORK.long(
    "connections.max.idle.ms",
    600_000,
    "A connection silent for this long is closed; negative means never.",
    mark=WORKS,
)
CONNECTION_FAILED_AUTHENTICATION_DELAY_MS: Final = NETWORK.integer(
    "connection.failed.authentication.delay.ms",
    100,
    "Delay before a connection that failed to log in is closed.",
    lo=0,
    mark=WORKS,
)
QUEUED_MAX_REQUESTS: Final = NETWORK.integer(
    "queued.max.requests", 500, "Requests that may wait before reading from sockets pauses.", lo=1
)
QUEUED_MAX_REQUEST_BYTES: Final = NETWORK.long(
    "queued.max.request.bytes",
    268_435_456,
    "Memory for requests of more than 256 KB that are being received or prepared, of all connections together; further ones "
    "are not read until there is room. At least socket.request.max.bytes; -1 means no limit, which is Kafka's default.",
    mark=WORKS,
)
REQUEST_TIMEOUT_MS: Final = NETWORK.integer(
    "request.timeout.ms", 30_000, "Time-out of requests that this broker sends."
)
SOCKET_CONNECTION_SETUP_TIMEOUT_MS: Final = NETWORK.long(
    "socket.connection.setup.timeout.ms", 10_000, "First time-out when this broker connects to another."
)
SOCKET_CONNECTION_SETUP_TIMEOUT_MAX_MS: Final = NETWORK.long(
    "socket.connection.setup.timeout.max.ms", 30_000, "Longest time-out when this broker connects to another."
)
MESSAGE_MAX_BYTES: Final = NETWORK.integer(
    "message.max.bytes",
    1_048_588,
    "Largest record batch that is accepted.",
    lo=0,
    mode=CLUSTER,
    topic="max.message.bytes",
    mark=WORKS,
)
FETCH_MAX_BYTES: Final = NETWORK.integer(
    "fetch.max.bytes",
    57_671_680,
    "Maximum bytes returned for one fetch, whatever the client asks for.",
    lo=1024,
    mark=WORKS,
)
MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS: Final = NETWORK.integer(
    "max.incremental.fetch.session.cache.slots",
    1000,
    "Maximum number of fetch sessions that are remembered.",
    lo=0,
    mark=WORKS,
)
MAX_REQUEST_PARTITION_SIZE_LIMIT: Final = NETWORK.integer(
    "max.request.partition.size.limit",
    2000,
    "Maximum number of partitions in one DescribeTopicPartitions answer.",
    lo=1,
    mark=WORKS,
)
for _name, _default in (
    ("fetch.purgatory.purge.interval.requests", 1000),
    ("producer.purgatory.purge.interval.requests", 1000),
    ("delete.records.purgatory.purge.interval.requests", 1),
):
    NETWORK.integer(
        _name,
        _default,
        "Belongs to Kafka's purgatory; here, finished requests are removed at once.",
        mark=IGNORED,
    )
