"""AlterLink and DescribeLinks (keys 30006 and 30007, our own): links that mirror topics of other clusters.

Not among Kafka's: ApiVersions announces them to Barnabas' own client only. A broker describes the partitions that it leads.
"""

from __future__ import annotations

from barnabas.wire.schema import Request, Response, Struct, array, boolean, int8, int16, int32, int64, string


class LinkOption(Struct):
    name: str = string()
    value: str = string()


class AlterLinkRequest(Request, key=30006, versions=(0, 0), flexible=0):
    name: str = string()
    action: int = int8()
    """0: create, 1: delete, 2: promote, 3: pause, 4: go on, 5: mirror again what was promoted."""
    options: list[LinkOption] = array(LinkOption)
    """Of a link that is created."""
    topics: list[str] | None = array(string, null="0+", default=None)
    """Those that the action is about; null for all of the link."""
    validate_only: bool = boolean()
    without_source: bool = boolean()
    """Promote even if the copies lack records of the source, or it cannot be reached."""


class LinkTail(Struct):
    topic: str = string()
    partition: int = int32()
    mirrored_end: int = int64()
    source_end: int = int64(default=-1)
    open_transactions: int = int32()


class AlterLinkResponse(Response, key=30006, versions=(0, 0), flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    partitions: list[LinkTail] = array(LinkTail)
    """The partitions that the action is about."""


class DescribeLinksRequest(Request, key=30007, versions=(0, 0), flexible=0):
    names: list[str] | None = array(string, null="0+", default=None)


class LinkPartition(Struct):
    topic: str = string()
    partition: int = int32()
    state: str = string()
    reason: str = string()
    log_start: int = int64()
    log_end: int = int64()
    source_start: int = int64(default=-1)
    source_end: int = int64(default=-1)
    lag_ms: int = int64(default=-1)
    missed: int = int64()
    dropped: int = int64()
    leader_epoch: int = int32()
    source_epoch: int = int32(default=-1)
    open_transactions: int = int32()


class LinkProblem(Struct):
    topic: str = string()
    reason: str = string()


class DescribedLink(Struct):
    name: str = string()
    state: str = string()
    options: list[LinkOption] = array(LinkOption)
    """Without secrets."""
    reason: str = string()
    """Why the source cannot be reached from the broker that answers; empty if it can."""
    partitions: list[LinkPartition] = array(LinkPartition)
    topics: list[str] = array(string)
    problems: list[LinkProblem] = array(LinkProblem)
    """Topics and groups that the controller cannot mirror."""
    groups: int = int32()
    """How many groups' offsets the broker that answers copies."""


class DescribeLinksResponse(Response, key=30007, versions=(0, 0), flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    links: list[DescribedLink] = array(DescribedLink)
