"""The interface that the executor notifies of metadata changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from barnabas.cores import acl
from barnabas.cores.cluster_image import TopicImage


class Followers(Protocol):
    """Acts on the contents of the image."""

    async def topic_changed(self, topic: TopicImage) -> None:
        """A topic is about to become visible: create its partitions on this broker and give them their roles."""

    async def topic_gone(self, topic: TopicImage) -> None:
        """A topic is no longer visible: drop its partitions."""

    def config_changed(self, kind: str, name: str) -> None:
        """The options of an entity have changed."""

    def partitions_changed(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Partitions of visible topics have other leaders or in-sync replicas."""

    def acls_changed(self, resources: Iterable[acl.Resource]) -> None:
        """The access rules of resources have changed."""

    def broker_registered(self, broker_id: int, epoch: int | None) -> None:
        """A broker has registered, perhaps not for the first time; epoch: its present broker epoch, None if it is gone."""

    async def settle(self) -> None:
        """The session, the controller or the live brokers may have changed: register, become controller, elect as needed."""
