"""The way back after a promotion: the former source becomes a copy of the target (reverse), or the primary again (failback).

Both sides are administered; a failback that was interrupted goes on where it was when it is asked for again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.admin.blocking import Admin
from barnabas.admin.families.links import Link
from barnabas.admin.families.records import LATEST
from barnabas.admin.values import TopicPartition
from barnabas.client.errors import ClientError
from barnabas.cores.links import LinkSpec

POLL_S: Final = 0.2


class NotYet(ClientError):
    """The source has not caught up in time; it goes on, and so does a failback that is asked for again."""


@dataclass(frozen=True, slots=True)
class Parting:
    """Where the logs of a partition part. removed: how many offsets the source has from `parts_at` on, which the target has
    not; to_copy: how many the target has from there on."""

    key: TopicPartition
    parts_at: int
    removed: int
    to_copy: int

    def row(self) -> dict[str, str | int]:
        """As one flat object."""
        return {"topic": self.key.topic, "partition": self.key.partition, "parts_at": self.parts_at,
                "removed": self.removed, "to_copy": self.to_copy}  # fmt: skip


@dataclass(frozen=True, slots=True)
class WayBack:
    """A link that was promoted, seen from both sides. back: the link of the same name at the source, None if there is none.

    topics: those that the link copied and both sides have.
    """

    link: Link
    source: Admin
    target: Admin
    topics: Sequence[str]
    back: Link | None

    def partings(self) -> list[Parting]:
        """Where the logs of the source's partitions part from the target's, by their leader epochs. Raises ClientError."""
        source, target = self.source, self.target
        theirs = source.records.offsets(dict.fromkeys(self._partitions(), LATEST))
        ours = target.records.offsets(dict.fromkeys(theirs.done, LATEST)).require()
        epochs = {key: row.leader_epoch for key, row in theirs.done.items() if row.leader_epoch is not None}
        ends = target.records.epoch_ends(epochs).require()
        partings = []
        for key, row in theirs.done.items():
            end, own_end = int(row.offset or 0), int(ours[key].offset or 0)
            parts_at = min(end, ends.get(key, own_end), own_end)
            partings.append(Parting(key, parts_at, end - parts_at, own_end - parts_at))
        return partings

    def reverse(self, reach: Mapping[str, str]) -> None:
        """Make the source a copy of the target. reach: a client's properties: how the source's brokers reach the target.

        Raises ClientError.
        """
        self._create_back(reach)
        self.target.links.delete(self.link.name)

    def fail_back(
        self,
        reach: Mapping[str, str],
        timeout_s: float,
        tell_read_only: Callable[[], None] = lambda: None,
    ) -> None:
        """Make the source the primary again, and the target its copy. reach: see reverse. tell_read_only: called once the
        topics are read-only in the target. Raises NotYet, ClientError.
        """
        name, back = self.link.name, self.back
        if back is None or back.state != "promoted" or self.link.state == "promoted":
            if back is not None and back.state == "promoted":
                self.source.links.delete(name)  # of an earlier failback: the target was promoted again since
            give_up = time.monotonic() + timeout_s
            parted = self.partings()
            self._create_back(reach)
            self._await_copies(parted, give_up)
            self.target.links.mirror_again(name)  # read-only from now on, and paused: nothing is fetched yet
            tell_read_only()
            self._await_ends(give_up)
        self.source.links.promote(name)
        # The link there is removed last: as long as it is there, it is known how far a failback came.
        if _named(self.target, name).state == "paused":
            self.target.links.resume(name)
        self.source.links.delete(name)

    def _partitions(self) -> list[TopicPartition]:
        views = self.target.topics.describe(self.topics).require()
        return [
            TopicPartition(name, part.number) for name, topic in views.items() for part in topic.partitions
        ]

    def _create_back(self, reach: Mapping[str, str]) -> None:
        options = self.link.options
        spec = LinkSpec(
            self.link.name,
            dict(reach),
            ",".join(map(re.escape, self.topics)),
            groups=options.get("groups", ""),
            groups_exclude=options.get("groups.exclude", ""),
            interval_ms=int(options.get("interval.ms", "5000")),
            takes_over=True,
        )
        if _find(self.source, spec.name) is None:
            self.source.links.create(spec.name, spec.texts())

    def _await_copies(self, parted: Sequence[Parting], give_up: float) -> None:
        """Wait until the source has nearly everything."""
        wanted = {(row.key.topic, row.key.partition) for row in parted}
        while True:
            rows = {(row.topic, row.partition): row for row in _named(self.source, self.link.name).partitions}
            if wanted <= rows.keys() and all(rows[key].state == "in sync" for key in wanted):
                return
            if time.monotonic() > give_up:
                late = next((rows[key] for key in wanted & rows.keys() if rows[key].state != "in sync"), None)
                why = "" if late is None else f": {late.topic}-{late.partition} is {late.state} {late.reason}"
                raise NotYet(
                    f"the source has not caught up in time{why.rstrip()}; it goes on. Fail back again"
                )
            time.sleep(POLL_S)

    def _await_ends(self, give_up: float) -> None:
        """Wait until the source has everything that the target has, which gets nothing more."""
        keys = self._partitions()
        while True:
            ours = self.target.records.offsets(dict.fromkeys(keys, LATEST)).require()
            theirs = self.source.records.offsets(dict.fromkeys(keys, LATEST)).require()
            if all(theirs[key].offset == ours[key].offset for key in keys):
                return
            if time.monotonic() > give_up:
                raise NotYet(
                    "the source lacks records of this cluster still; fail back again: the topics stay read-only here"
                )
            time.sleep(POLL_S)


def way_back(link: Link, source: Admin, target: Admin, *, may_go_on: bool) -> WayBack:
    """The way back of a link. may_go_on: an earlier failback may be under way. Raises ClientError if there is nothing
    to bring back.
    """
    back = _find(source, link.name)
    goes_on = may_go_on and back is not None and (link.state == "paused" or back.state == "promoted")
    if link.state != "promoted" and not goes_on:
        raise ClientError(
            f"the link {link.name} is {link.state}; promote it first, or fail over: then there is something to bring back"
        )
    spec = LinkSpec.of(link.name, link.options)
    both = source.topics.list(internal=False).keys() & target.topics.list(internal=False).keys()
    topics = sorted(topic for topic in both if spec.takes_topic(topic))
    if not topics:
        raise ClientError(f"{link.source} has none of the topics of the link {link.name}")
    return WayBack(link, source, target, topics, back)


def _find(admin: Admin, name: str) -> Link | None:
    return next((link for link in admin.links.describe() if link.name == name), None)


def _named(admin: Admin, name: str) -> Link:
    link = _find(admin, name)
    if link is None:
        raise ClientError(f"the link {name} is not there any more")
    return link
