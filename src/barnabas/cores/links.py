"""Links to other clusters: what is mirrored, and where a mirrored log goes on. No I/O.

A link is stored under /config/links in the metadata tree of the cluster that holds the copies, its `target`. A topic that is
mirrored has the option `barnabas.link`, which names the link and the id of the topic in the source (`LinkedTopic`); without
the option it is a topic like any other. Batches keep the leader epochs of the source, so the target's partition is always in
an epoch at least as high, and logs can be compared by epochs in both directions.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from barnabas.cores.cluster_image import ClusterImage
from barnabas.cores.controller import fenced
from barnabas.cores.elections import state_op
from barnabas.cores.znode_ops import Op
from barnabas.wire.errors import ApiError, ErrorCode

KIND: Final = "links"
"""Where links are stored under /config."""
TOPIC_OPTION: Final = "barnabas.link"
SOURCE: Final = "source."
"""The prefix of the options with which the source is reached."""
MIRRORING: Final = "mirroring"
PAUSED: Final = "paused"
PROMOTED: Final = "promoted"
STATES: Final = (MIRRORING, PAUSED, PROMOTED)
EPOCHS_AHEAD: Final = 1_000
"""A promoted partition begins with an epoch so far above the newest of the source that is known: the source, if it lives on
unseen, has written nothing in that epoch or later ones."""
INTERVAL_MS_MIN: Final = 100
NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """One link. topics, groups: comma-separated regular expressions (RE2) that match whole names. start_ms: records before
    this time are not copied; -1 for everything. interval_ms: how often topics, options and groups are looked at. replicas:
    of topics that are created; -1 for the target's default. acls: whether access rules of the topics follow. takes_over:
    whether topics that exist are made copies of the source's, and what they have beyond it is removed. promoted: topics that
    were made writable while the link goes on with others. source: client options.
    """

    name: str
    source: Mapping[str, str]
    topics: str = ""
    topics_exclude: str = ""
    groups: str = ""
    groups_exclude: str = ""
    start_ms: int = -1
    interval_ms: int = 5_000
    replicas: int = -1
    acls: bool = False
    takes_over: bool = False
    promoted: frozenset[str] = frozenset()
    state: str = MIRRORING

    def texts(self) -> dict[str, str]:
        """As stored in the tree."""
        own = {
            "topics": self.topics,
            "topics.exclude": self.topics_exclude,
            "groups": self.groups,
            "groups.exclude": self.groups_exclude,
            "start.ms": str(self.start_ms),
            "interval.ms": str(self.interval_ms),
            "replication.factor": str(self.replicas),
            "acls": str(self.acls).lower(),
            "takes.over": str(self.takes_over).lower(),
            "promoted": ",".join(sorted(self.promoted)),
            "state": self.state,
        }
        return own | {SOURCE + name: text for name, text in self.source.items()}

    @classmethod
    def of(cls, name: str, texts: Mapping[str, str]) -> LinkSpec:
        """From the tree. Raises ApiError for what cannot be used."""
        source = {key.removeprefix(SOURCE): text for key, text in texts.items() if key.startswith(SOURCE)}
        try:
            start_ms = int(texts.get("start.ms", "-1"))
            interval_ms = int(texts.get("interval.ms", "5000"))
            replicas = int(texts.get("replication.factor", "-1"))
        except ValueError as error:
            raise _invalid(f"link {name}: {error}") from None
        spec = cls(
            name,
            source,
            texts.get("topics", ""),
            texts.get("topics.exclude", ""),
            texts.get("groups", ""),
            texts.get("groups.exclude", ""),
            start_ms,
            interval_ms,
            replicas,
            acls=texts.get("acls") == "true",
            takes_over=texts.get("takes.over") == "true",
            promoted=frozenset(filter(None, texts.get("promoted", "").split(","))),
            state=texts.get("state", MIRRORING),
        )
        spec.check()
        return spec

    def check(self) -> None:
        """Raises ApiError INVALID_CONFIG for what cannot be used."""
        if not NAME.fullmatch(self.name):
            raise _invalid(
                f"a link's name has 1 to 100 letters, digits, '.', '_' or '-'; {self.name[:110]!r} does not"
            )
        if not self.source.get("bootstrap.servers", "").strip():
            raise _invalid(f"link {self.name} names no brokers of its source (bootstrap.servers)")
        if self.state not in STATES:
            raise _invalid(f"link {self.name} has the state {self.state!r}; there are {', '.join(STATES)}")
        if self.interval_ms < INTERVAL_MS_MIN:
            raise _invalid(
                f"link {self.name}: interval.ms is {self.interval_ms}, and at least {INTERVAL_MS_MIN}"
            )
        if not self.topics.strip():
            raise _invalid(f"link {self.name} selects no topics")
        for patterns in (self.topics, self.topics_exclude, self.groups, self.groups_exclude):
            _compiled(patterns)

    def takes_topic(self, name: str) -> bool:
        """Whether a topic of the source is mirrored. Internal topics never are."""
        return (
            not name.startswith("__")
            and name not in self.promoted
            and _matches(self.topics, name)
            and not _matches(self.topics_exclude, name)
        )

    def lets_go(self, topic: str) -> bool:
        """Whether a topic that may still be mirrored is to become one like any other."""
        return self.state == PROMOTED or topic in self.promoted

    def takes_group(self, name: str) -> bool:
        """Whether the offsets of a group are copied."""
        return _matches(self.groups, name) and not _matches(self.groups_exclude, name)


def _invalid(why: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_CONFIG, why)


def _matches(patterns: str, name: str) -> bool:
    return any(pattern.fullmatch(name) is not None for pattern in _compiled(patterns))


@lru_cache(maxsize=256)
def _compiled(patterns: str) -> tuple[Any, ...]:
    """The expressions of a comma-separated list. Commas within brackets belong to an expression. Raises ApiError."""
    import re2  # takes 10 ms, and most brokers have no links

    options = re2.Options()
    options.log_errors = False
    expressions = []
    for pattern in _split(patterns):
        try:
            expressions.append(re2.compile(pattern, options))
        except re2.error as error:
            cause = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else error
            raise _invalid(f"{pattern!r} is not a regular expression: {cause}") from None
    return tuple(expressions)


def _split(patterns: str) -> list[str]:
    parts, depth, begin = [], 0, 0
    for at, letter in enumerate(patterns):
        depth += (letter in "{[(") - (letter in "}])")
        if letter == "," and depth <= 0:
            parts.append(patterns[begin:at])
            begin = at + 1
    parts.append(patterns[begin:])
    return [part.strip() for part in parts if part.strip()]


# --- topics -------------------------------------------------------------------------------------------------


class LinkedTopic(NamedTuple):
    """The value of a topic's option `barnabas.link`: LINK, or LINK@ID with the id that the topic has in the source."""

    link: str
    source_id: str = ""

    def __str__(self) -> str:
        return f"{self.link}@{self.source_id}" if self.source_id else self.link

    @classmethod
    def of(cls, text: str) -> LinkedTopic | None:
        """None for a topic that is not mirrored."""
        if not text:
            return None
        link, _, source_id = text.partition("@")
        return cls(link, source_id)


def link_of(image: ClusterImage, topic: str) -> LinkedTopic | None:
    """The link by which a topic is mirrored."""
    return LinkedTopic.of(image.config("topics", topic).get(TOPIC_OPTION, ""))


def linked_topics(image: ClusterImage, link: str) -> list[str]:
    """The topics that a link mirrors, by name."""
    names = []
    for (kind, topic), texts in image.configs.items():
        if kind == "topics" and topic in image.topics and TOPIC_OPTION in texts:
            linked = LinkedTopic.of(texts[TOPIC_OPTION])
            if linked is not None and linked.link == link:
                names.append(topic)
    return sorted(names)


def refuse_write(topic: str, link: str) -> ApiError:
    """The answer to requests that would change the records of a mirrored topic."""
    name = LinkedTopic.of(link)
    shown = "" if name is None else name.link
    return ApiError(
        ErrorCode.POLICY_VIOLATION,
        f"{topic} is a read-only copy that the link {shown!r} mirrors from another cluster; write to its source, or make it "
        f"writable with: barnabas mirror link promote {shown}",
    )


def require_not_linked(image: ClusterImage, topic: str) -> None:
    """Raises ApiError POLICY_VIOLATION for a mirrored topic."""
    text = image.config("topics", topic).get(TOPIC_OPTION, "")
    if text:
        raise refuse_write(topic, text)


# --- where a log goes on ------------------------------------------------------------------------------------


class Ends(NamedTuple):
    """Where a log starts and ends."""

    start: int
    end: int


class Step(NamedTuple):
    """What happens to a mirrored log before fetching goes on.

    kind: BEGIN (all records go, and the log begins at `offset`), CUT (it ends at `offset` afterwards), AGAIN (nothing: the
    source has changed meanwhile). missed: how many offsets of the source were never copied and are gone there. dropped: how
    many offsets that were copied are removed here, because the source has lost them.
    """

    kind: str
    offset: int = 0
    missed: int = 0
    dropped: int = 0


BEGIN: Final = "begin"
CUT: Final = "cut"
AGAIN: Final = "again"


def decide_out_of_range(own: Ends, source: Ends, first: int) -> Step:
    """The source has nothing at the end of this log.

    first: the offset at which a new copy is to begin, at least that of the source's start.
    """
    if own == (0, 0):
        begin = min(max(source.start, first), source.end)
        return Step(BEGIN, begin) if begin else Step(AGAIN)
    if own.end < source.start:  # retention has overtaken the mirror
        return Step(BEGIN, source.start, missed=source.start - own.end)
    if own.end > source.end:  # an unclean election, or records were lost
        if source.end >= own.start:
            return Step(CUT, source.end, dropped=own.end - source.end)
        return Step(BEGIN, source.start, dropped=own.end - own.start)
    return Step(AGAIN)


def start_to_follow(own: Ends, high_watermark: int, source_start: int) -> int | None:
    """The log start offset to take over from the source; None if this log starts there or later already."""
    start = min(source_start, high_watermark)
    return start if start > own.start else None


def clamped(committed: int, own: Ends) -> int:
    """A group's offset at the source as an offset in the copy: consumers go on where they were, or at the copy's end, if it
    lacks what they have read."""
    return min(max(committed, own.start), own.end)


# --- producer ids -------------------------------------------------------------------------------------------

RANGE_IDS: Final = 1 << 40
RANGES: Final = 1 << 22


def own_range(cluster_id: str) -> range:
    """The producer ids that a cluster with links hands out. Its id chooses one of four million ranges, none of which begins
    at 0 as those of clusters without links do: copies keep the ids of their source, and a producer of this cluster with the
    id of one there would have its batches taken for duplicates.
    """
    chosen = int.from_bytes(hashlib.sha256(cluster_id.encode()).digest()[:8], "big")
    first = (1 + chosen % (RANGES - 1)) * RANGE_IDS
    return range(first, first + RANGE_IDS)


# --- epochs -------------------------------------------------------------------------------------------------


def decide_epochs(image: ClusterImage, wanted: Mapping[tuple[str, int], int]) -> Iterable[Op]:
    """Raise the leader epochs of partitions to at least these; their leaders and in-sync replicas stay."""
    ops = []
    for (topic, index), epoch in wanted.items():
        partition = image.partition(topic, index)
        if partition is None or partition.partition_epoch < 0 or partition.leader_epoch >= epoch:
            continue
        ops.append(state_op(image, topic, index, replace(partition, leader_epoch=epoch)))
    return fenced(image, ops) if ops else ()


def promoted_epoch(leader_epoch: int, source_epoch: int) -> int:
    """The first epoch of a promoted partition, above all that the source may have used."""
    return max(leader_epoch, source_epoch) + EPOCHS_AHEAD
