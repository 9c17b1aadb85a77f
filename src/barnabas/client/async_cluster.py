"""The brokers of a cluster for asynchronous callers: connections, the controller, leaders, coordinators, retries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from barnabas.client.async_connection import AsyncConnection, Dial
from barnabas.client.errors import BrokerError, BrokerUnavailable, ClientError
from barnabas.client.options import ClientOptions
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

T = TypeVar("T")

BACKOFF_MAX_S: Final = 1.0
CONTACT_PAUSE_S: Final = 0.2
GROUP: Final = 0
TRANSACTION: Final = 1
"""What a coordinator coordinates."""
MANY_KEYS_VERSION: Final = 4
"""The first version of FindCoordinator that asks for several keys."""
KEYS_MAX: Final = 500
"""The most keys or topics in one request."""
PASSING: Final = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""Errors that pass by themselves, or with newer metadata. That something does not exist is none of them: whoever
administers wants to be told at once."""


def is_passing(error: BaseException) -> bool:
    """Whether the same request may succeed a little later."""
    return isinstance(error, BrokerUnavailable) or (isinstance(error, BrokerError) and error.code in PASSING)


class Node(NamedTuple):
    """One broker. rack: None if it names none."""

    id: int
    host: str
    port: int
    rack: str | None = None


class Patience:
    """The pauses between attempts: growing, until the options' deadline, and no more than retries_max."""

    def __init__(self, options: ClientOptions) -> None:
        self._give_up = asyncio.get_running_loop().time() + options.deadline_s
        self._pause_s = options.backoff_s
        self._left = options.retries_max

    async def pause(self) -> bool:
        """Wait before the next attempt; False if there is to be none."""
        if self._left == 0 or asyncio.get_running_loop().time() + self._pause_s >= self._give_up:
            return False
        self._left = None if self._left is None else self._left - 1
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, BACKOFF_MAX_S)
        return True


class AsyncCluster:
    """Belongs to one event loop. nodes: the brokers, by id, as the last metadata named them. is_stale: a failure since then
    says that they may be others now. dial: how to connect; None for sockets of this machine's."""

    def __init__(self, options: ClientOptions, dial: Dial | None = None) -> None:
        self.options = options
        self._dial = dial
        self.nodes: dict[int, Node] = {}
        self.controller_id = -1
        self.cluster_id: str | None = None
        self.has_answered = False
        self.is_stale = True
        self._connections: dict[tuple[str, int], AsyncConnection] = {}
        self._locks: dict[tuple[str, int], asyncio.Lock] = {}
        self._leaders: dict[str, dict[int, int]] = {}
        self._coordinators: dict[tuple[int, str], int] = {}

    async def close(self) -> None:
        """Close every connection; what is under way fails."""
        connections = list(self._connections.values())
        self._connections.clear()
        for connection in connections:
            connection.close()
        for connection in connections:
            await connection.wait_closed()

    def patience(self) -> Patience:
        return Patience(self.options)

    # --- connections ------------------------------------------------------------------------------

    async def connect(self, address: tuple[str, int]) -> AsyncConnection:
        """The connection to an address, shared by all callers. Raises as AsyncConnection.open."""
        async with self._locks.setdefault(address, asyncio.Lock()):
            connection = self._connections.get(address)
            if connection is None or not connection.is_open:
                connection = await AsyncConnection.open(*address, self.options, self._dial)
                self._connections[address] = connection
            return connection

    async def any(self) -> AsyncConnection:
        """A connection to any broker: an open one, otherwise one to the first that answers.

        Raises BrokerUnavailable that names every address tried.
        """
        for connection in self._connections.values():
            if connection.is_open:
                return connection
        clock = asyncio.get_running_loop().time
        give_up = clock() + (0 if self.has_answered else self.options.contact_timeout_s)
        while True:
            failures = []
            known = [(node.host, node.port) for node in self.nodes.values()]
            for address in dict.fromkeys([*self.options.bootstrap, *known]):
                try:
                    connection = await self.connect(address)
                except BrokerUnavailable as error:
                    failures.append(str(error))
                    continue
                self.has_answered = True
                return connection
            if clock() >= give_up:
                raise BrokerUnavailable("; ".join(failures))
            await asyncio.sleep(CONTACT_PAUSE_S)

    async def node(self, node_id: int) -> AsyncConnection:
        """A connection to this broker, or to any if node_id is -1. Raises BrokerUnavailable if it is not known."""
        if node_id < 0:
            return await self.any()
        if node_id not in self.nodes:
            await self.refresh()
        node = self.nodes.get(node_id)
        if node is None:
            raise BrokerUnavailable(f"broker {node_id} is not among the live ones")
        return await self.connect((node.host, node.port))

    # --- where to ask -----------------------------------------------------------------------------

    async def metadata(self, topics: Iterable[str] | None = (), *, rights: bool = False) -> MetadataResponse:
        """What one broker knows of the cluster and of these topics (None: all). Remembers brokers and leaders.

        rights: ask as well what the caller may do with each topic, where the broker can tell.
        """
        names = None if topics is None else list(dict.fromkeys(topics))
        connection = await self.any()
        version = connection.version_for(MetadataRequest)
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        if version == 0 and not names:
            # Before version 1 an empty list means all topics; nothing else can be asked.
            wanted = []
        request = MetadataRequest(
            topics=wanted,
            allow_auto_topic_creation=version < 4,
            include_topic_authorized_operations=rights and version >= 8,
        )
        answer: MetadataResponse = await connection.call(request, MetadataResponse)
        self.nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in answer.brokers}
        self.controller_id = answer.controller_id
        self.cluster_id = answer.cluster_id
        self.is_stale = False
        for topic in answer.topics:
            if topic.name is not None and topic.error_code == 0:
                self._leaders[topic.name] = {p.partition_index: p.leader_id for p in topic.partitions}
        return answer

    async def refresh(self) -> None:
        """Ask again who the brokers and the controller are."""
        await self.metadata()

    async def controller(self) -> int:
        """The controller's id; -1 where the broker names none: any broker forwards requests then."""
        await self.refresh()
        return self.controller_id

    def forget_routes(self) -> None:
        """Forget leaders and coordinators after an error that says that they have changed."""
        self.is_stale = True
        self._leaders.clear()
        self._coordinators.clear()

    async def leaders(
        self, partitions: Iterable[tuple[str, int]]
    ) -> dict[tuple[str, int], int | ClientError]:
        """The leader of each partition, or what is wrong with it."""
        wanted = list(partitions)
        unknown = {topic for topic, number in wanted if self._leaders.get(topic, {}).get(number, -1) < 0}
        errors: dict[str, int] = {}
        names = sorted(unknown)
        for start in range(0, len(names), KEYS_MAX):
            answer = await self.metadata(names[start : start + KEYS_MAX])
            for row in answer.topics:
                if row.error_code and row.name is not None:
                    self._leaders.pop(row.name, None)
                    errors[row.name] = row.error_code
        leaders: dict[tuple[str, int], int | ClientError] = {}
        for topic, number in wanted:
            leader = self._leaders.get(topic, {}).get(number)
            if leader is not None and leader >= 0:
                leaders[topic, number] = leader
                continue
            no_leader = ErrorCode.LEADER_NOT_AVAILABLE
            missing = errors.get(topic) or (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if leader is None else no_leader
            )
            leaders[topic, number] = BrokerError(missing, f"partition {topic}-{number}")
        return leaders

    async def coordinators(self, keys: Iterable[str], kind: int = GROUP) -> dict[str, int | ClientError]:
        """The coordinating broker of each group or transactional id, or what is wrong."""
        wanted = list(dict.fromkeys(keys))
        unknown = [key for key in wanted if (kind, key) not in self._coordinators]
        errors: dict[str, ClientError] = {}
        connection = await self.any()
        many = connection.version_for(FindCoordinatorRequest) >= MANY_KEYS_VERSION
        step = KEYS_MAX if many else 1
        for start in range(0, len(unknown), step):
            names = unknown[start : start + step]
            request = (
                FindCoordinatorRequest(key_type=kind, coordinator_keys=names)
                if many
                else FindCoordinatorRequest(key=names[0], key_type=kind)
            )
            answer = await connection.call(request, FindCoordinatorResponse)
            rows: Mapping[str, object] = (
                {row.key: row for row in answer.coordinators} if many else {names[0]: answer}
            )
            for key, row in rows.items():
                self._note_coordinator(kind, key, row, errors)
        left_out = BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "looking for a coordinator")
        coordinators: dict[str, int | ClientError] = {}
        for key in wanted:
            coordinators[key] = (
                errors[key] if key in errors else self._coordinators.get((kind, key), left_out)
            )
        return coordinators

    def _note_coordinator(self, kind: int, key: str, row: object, errors: dict[str, ClientError]) -> None:
        code: int = getattr(row, "error_code", 0)
        if code:
            doing = f"looking for the coordinator of {key}"
            errors[key] = BrokerError(code, doing, getattr(row, "error_message", None))
            return
        node_id: int = getattr(row, "node_id", -1)
        self._coordinators[kind, key] = node_id
        host, port = getattr(row, "host", ""), getattr(row, "port", -1)
        self.nodes.setdefault(node_id, Node(node_id, host, port))

    # --- retries ----------------------------------------------------------------------------------

    async def retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat `attempt` while it fails with what passes, with growing pauses, until the deadline.

        At the end the last error is raised. A cluster that has never answered is not waited for.
        """
        patience = self.patience()
        while True:
            try:
                return await attempt()
            except ClientError as error:
                if not is_passing(error) or not self.has_answered or not await patience.pause():
                    raise
            self.forget_routes()
