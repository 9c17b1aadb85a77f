"""Links, which only Barnabas's own brokers have: they mirror topics of other clusters with their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from barnabas.admin.errors import ResourceError
from barnabas.admin.families.configs import AsyncConfigs, ConfigKind, ConfigResource
from barnabas.admin.looping import Family, blocking
from barnabas.admin.spread import each_node, spread, to_controller
from barnabas.admin.values import Offset
from barnabas.client.async_cluster import AsyncCluster
from barnabas.client.async_connection import AsyncConnection
from barnabas.client.errors import ClientError
from barnabas.cores.links import TOPIC_OPTION, refuse_write
from barnabas.wire.messages import links as wire


@dataclass(frozen=True, slots=True)
class MirroredPartition:
    """A copied partition as its leader knows it. state: starting, copying, in sync, waiting or stopped; reason: why it waits
    or has stopped. source_start, source_end: -1 while unknown. lag_ms: how old the newest copied record is if there are
    newer ones, -1 while unknown. missed: offsets that retention removed in the source before they were copied. dropped:
    offsets that were copied and removed again, because the source lost them.
    """

    topic: str
    partition: int
    state: str
    reason: str
    log_start: Offset
    log_end: Offset
    source_start: int
    source_end: int
    lag_ms: int
    missed: int
    dropped: int
    leader_epoch: int
    source_epoch: int
    open_transactions: int

    @property
    def lag(self) -> int:
        """How many offsets the copy is behind; -1 while that is unknown."""
        return -1 if self.source_end < 0 else max(self.source_end - self.log_end, 0)


@dataclass(frozen=True, slots=True)
class Link:
    """A link. options: without secrets. unreachable: why a broker cannot reach the source, empty if all can. problems: what
    cannot be mirrored, and why."""

    name: str
    state: str
    options: Mapping[str, str]
    topics: tuple[str, ...]
    unreachable: str = ""
    problems: Mapping[str, str] = field(default_factory=dict)
    partitions: tuple[MirroredPartition, ...] = ()
    groups: int = 0

    @property
    def source(self) -> str:
        """The brokers at which the source is reached."""
        return self.options.get("source.bootstrap.servers", "")


def lag_of(rows: Sequence[MirroredPartition]) -> int | None:
    """How many offsets copies are behind in all; None without any, or while that of one is unknown."""
    lags = [row.lag for row in rows]
    return None if not lags or min(lags) < 0 else sum(lags)


def lag_ms_of(rows: Sequence[MirroredPartition]) -> int | None:
    """How old the newest record of the copy is that is most behind; None as for `lag_of`."""
    times = [row.lag_ms for row in rows]
    return None if not times or min(times) < 0 else max(times)


@dataclass(frozen=True, slots=True)
class LinkTail:
    """What a copy has, and what its source had as far as known (-1: unknown). Transactions that are open are aborted."""

    topic: str
    partition: int
    mirrored_end: Offset
    source_end: int
    open_transactions: int

    @property
    def unmirrored(self) -> int:
        """How many offsets were not copied, as far as known."""
        return max(self.source_end - self.mirrored_end, 0)


class Action(IntEnum):
    """What is done to a link."""

    CREATE = 0
    DELETE = 1
    PROMOTE = 2
    PAUSE = 3
    RESUME = 4
    MIRROR_AGAIN = 5


class AsyncLinks:
    """`AsyncAdmin.links`. Brokers other than Barnabas fail with UnsupportedByBroker."""

    def __init__(self, cluster: AsyncCluster) -> None:
        self._cluster = cluster

    async def describe(self, names: Iterable[str] | None = None) -> Sequence[Link]:
        """These links (None: all) with their partitions, by name. Raises ClientError if no broker answers."""
        wanted = None if names is None else list(names)

        async def ask(connection: AsyncConnection) -> wire.DescribeLinksResponse:
            answer: wire.DescribeLinksResponse = await connection.call(
                wire.DescribeLinksRequest(names=wanted), wire.DescribeLinksResponse
            )
            if answer.error_code:
                raise ResourceError(answer.error_code, "describe", "links", answer.error_message)
            return answer

        results = await each_node(self._cluster, None, ask)
        if not results.done:
            for error in results.failed.values():
                raise error
        rows: dict[str, list[wire.DescribedLink]] = {}
        for answer in results.done.values():
            for row in answer.links:
                rows.setdefault(row.name, []).append(row)
        return [_merged(rows[name]) for name in sorted(rows)]

    async def create(self, name: str, options: Mapping[str, str], *, validate_only: bool = False) -> None:
        """Create a link. options: as `cores.links.LinkSpec` has them in the metadata. Raises ResourceError."""
        pairs = [wire.LinkOption(name=key, value=value) for key, value in options.items()]
        await self._alter(
            wire.AlterLinkRequest(
                name=name, action=Action.CREATE, options=pairs, validate_only=validate_only
            ),
            "create",
        )

    async def delete(self, name: str) -> None:
        """Remove a link that mirrors nothing any more. Raises ResourceError."""
        await self._alter(wire.AlterLinkRequest(name=name, action=Action.DELETE), "delete")

    async def why_read_only(self, topic: str) -> str:
        """What brokers answer to whoever writes to a copy, since librdkafka hands on only the error's code. Empty for a
        topic that is no copy, and if the caller may not see its options. Raises ClientError."""
        resource = ConfigResource(ConfigKind.TOPIC, topic)
        described = await AsyncConfigs(self._cluster).describe([resource], names=[TOPIC_OPTION])
        option = described.done.get(resource, {}).get(TOPIC_OPTION)
        return refuse_write(topic, option.value).message if option is not None and option.value else ""

    async def promote(
        self,
        name: str,
        topics: Iterable[str] | None = None,
        *,
        without_source: bool = False,
        validate_only: bool = False,
    ) -> Sequence[LinkTail]:
        """Make copies writable; they are not mirrored any more. without_source: even if they lack records of the source.

        Raises ResourceError.
        """
        rows = await self._alter(
            wire.AlterLinkRequest(
                name=name,
                action=Action.PROMOTE,
                topics=None if topics is None else list(topics),
                without_source=without_source,
                validate_only=validate_only,
            ),
            "promote",
        )
        tails = [
            LinkTail(
                row.topic, row.partition, Offset(row.mirrored_end), row.source_end, row.open_transactions
            )
            for row in rows
        ]
        return sorted(tails, key=lambda tail: (tail.topic, tail.partition))

    async def pause(self, name: str) -> None:
        """Copy nothing until `resume`. Raises ResourceError."""
        await self._alter(wire.AlterLinkRequest(name=name, action=Action.PAUSE), "pause")

    async def resume(self, name: str) -> None:
        """Copy again. Raises ResourceError."""
        await self._alter(wire.AlterLinkRequest(name=name, action=Action.RESUME), "go on with")

    async def mirror_again(self, name: str) -> None:
        """Make promoted topics read-only again. The link is paused: once it goes on, what they have beyond the source is
        removed.

        Raises ResourceError.
        """
        await self._alter(wire.AlterLinkRequest(name=name, action=Action.MIRROR_AGAIN), "mirror again with")

    async def _alter(self, request: wire.AlterLinkRequest, doing: str) -> list[wire.LinkTail]:
        rows: list[wire.LinkTail] = []

        async def ask(connection: AsyncConnection, batch: Sequence[str]) -> dict[str, ClientError | None]:
            answer = await connection.call(request, wire.AlterLinkResponse)
            rows[:] = answer.partitions
            error = None
            if answer.error_code:
                error = ResourceError(answer.error_code, doing, f"link {request.name}", answer.error_message)
            return dict.fromkeys(batch, error)

        (await spread(self._cluster, [request.name], to_controller(self._cluster), ask)).require()
        return rows


def _merged(rows: Sequence[wire.DescribedLink]) -> Link:
    """What several brokers know of one link."""
    first = rows[0]
    partitions = [
        MirroredPartition(
            row.topic, row.partition, row.state, row.reason, Offset(row.log_start), Offset(row.log_end),
            row.source_start, row.source_end, row.lag_ms, row.missed, row.dropped, row.leader_epoch, row.source_epoch,
            row.open_transactions,
        )
        for link in rows
        for row in link.partitions
    ]  # fmt: skip
    return Link(
        first.name,
        first.state,
        {option.name: option.value for option in first.options},
        tuple(sorted({topic for row in rows for topic in row.topics})),
        next((row.reason for row in rows if row.reason), ""),
        {problem.topic: problem.reason for row in rows for problem in row.problems},
        tuple(sorted(partitions, key=lambda row: (row.topic, row.partition))),
        sum(row.groups for row in rows),
    )


class Links(Family[AsyncLinks]):
    """`Admin.links`."""

    describe = blocking(AsyncLinks.describe)
    create = blocking(AsyncLinks.create)
    delete = blocking(AsyncLinks.delete)
    why_read_only = blocking(AsyncLinks.why_read_only)
    promote = blocking(AsyncLinks.promote)
    pause = blocking(AsyncLinks.pause)
    resume = blocking(AsyncLinks.resume)
    mirror_again = blocking(AsyncLinks.mirror_again)
