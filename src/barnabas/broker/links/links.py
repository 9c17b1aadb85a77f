"""All links of one broker: they follow the metadata, and their partitions follow the roles that this broker has.

The definitions and the topics' options are in the metadata tree, so links go on after restarts, and with the next leader.
What all brokers of a link do together (topics, options) is done by the controller; see upkeep.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from barnabas.broker.links.promoting import abort_open, describe, finish
from barnabas.broker.net.peers import PeerLost
from barnabas.client.errors import ClientError
from barnabas.cores.links import KIND, LinkedTopic, LinkSpec, decide_epochs, linked_topics
from barnabas.security.passwords import CannotDecrypt
from barnabas.wire.errors import ApiError
from barnabas.wire.messages.links import (
    DescribedLink,
    DescribeLinksRequest,
    DescribeLinksResponse,
    LinkPartition,
)

if TYPE_CHECKING:
    from barnabas.broker.cluster.controller import Controller
    from barnabas.broker.cluster.producer_ids import ProducerIds
    from barnabas.broker.coordinators.groups import GroupCoordinator
    from barnabas.broker.links.link import Link
    from barnabas.broker.net.peers import Peers
    from barnabas.broker.partitions.partition import Partition
    from barnabas.broker.partitions.registry import Partitions
    from barnabas.client.async_connection import Dial
    from barnabas.config.loader import BrokerConfig
    from barnabas.runtime.clock import Clock

log = logging.getLogger("barnabas.links")

RETRY_S: Final = 0.5
PEER_TIMEOUT_S: Final = 5.0
DESCRIBE_VERSION: Final = 0


class Links:
    """See the module. Call `start` once partitions are served; `close` ends them."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        controller: Controller,
        partitions: Partitions,
        peers: Peers,
        groups: GroupCoordinator,
        producer_ids: ProducerIds,
        dial: Dial | None = None,
    ) -> None:
        """dial: how to connect to sources; None for sockets of this machine's."""
        self.clock = clock
        self.controller = controller
        self.partitions = partitions
        self.groups = groups
        self._config = config
        self._peers = peers
        self._producer_ids = producer_ids
        self._dial = dial
        self._links: dict[str, Link] = {}
        self._broken: dict[str, str] = {}
        """Links that cannot run with their options, and why."""
        self._wanted_epochs: dict[tuple[str, int], int] = {}
        self._are_ids_apart = False
        """Whether this broker hands out no producer ids that a source may have given."""
        self._woken = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_started = False

    # --- following the metadata ------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to copy."""
        self._is_started = True
        self._tasks.add(asyncio.ensure_future(self._change_always()))
        for kind, name in list(self.controller.image.configs):
            if kind == KIND:
                await self._restart(name)

    async def close(self) -> None:
        """End all links."""
        self._is_started = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(link.close() for link in self._links.values()))
        self._links.clear()

    def config_changed(self, kind: str, entity: str) -> None:
        """A link or the options of a topic have changed."""
        if not self._is_started:
            return
        if kind == KIND:
            task = asyncio.ensure_future(self._restart(entity))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif kind == "topics" and self._links:
            self.roles_changed(list(self.partitions.of_topic(entity).values()))

    def roles_changed(self, changed: Iterable[Partition]) -> None:
        """This broker has begun or ceased to lead partitions, or they are mirrored or not any more."""
        for partition in changed:
            key = (partition.topic, partition.index)
            linked = LinkedTopic.of(partition.config.barnabas_link)
            leads = partition.is_leader and not partition.is_deleted
            for name, link in self._links.items():
                if leads and linked is not None and linked.link == name:
                    link.follow(partition, linked)
                    if link.spec.lets_go(partition.topic):
                        self._end_transactions(partition)
                elif key in link.mirrors:
                    link.forget(key)

    def _end_transactions(self, partition: Partition) -> None:
        """A copy is to become a topic like any other: before it does, so that no stop of a broker leaves any open."""
        try:
            ended = abort_open(partition)
        except ApiError as error:
            log.error(
                "transactions that a promoted topic has from its source cannot be ended; see barnabas txn",
                extra={"partition": str(partition), "reason": error.message},
            )
            return
        if ended:
            log.warning(
                "transactions that were open in the source were aborted in a promoted topic",
                extra={"partition": str(partition), "transactions": ended},
            )

    async def _restart(self, name: str) -> None:
        """Run a link as the metadata says."""
        from barnabas.broker.links.link import Link  # loads the client, which most brokers never need

        try:
            await self._keep_ids_apart()  # before anything is copied
        except ApiError as error:
            log.warning("producer ids are kept apart later", extra={"reason": error.message})
            self._woken.set()
        running = self._links.pop(name, None)
        self._broken.pop(name, None)
        if running is not None:
            await running.close()
        texts = self.controller.image.config(KIND, name)
        if not texts or not self._is_started or name in self._links:
            return
        try:
            spec = LinkSpec.of(name, texts)
            link = Link(
                spec,
                self.controller.configs.unsealed(spec.source),
                self._config,
                self.clock,
                self.partitions,
                self._raise_epoch,
                self._tend,
                self._dial,
            )
        except (ApiError, CannotDecrypt, ClientError) as error:
            self._broken[name] = str(error)
            log.error("a link cannot run", extra={"link": name, "reason": str(error)})
            return
        self._links[name] = link
        for topic in linked_topics(self.controller.image, name):
            self.roles_changed(list(self.partitions.of_topic(topic).values()))

    async def _keep_ids_apart(self) -> None:
        """Raises ApiError."""
        if not self._are_ids_apart:
            await self._producer_ids.keep_apart(self.controller.cluster_id)
            self._are_ids_apart = True

    async def _tend(self, link: Link) -> None:
        from barnabas.broker.links.groups import copy_groups
        from barnabas.broker.links.upkeep import Upkeep

        if not self.controller.is_certain:
            return
        if self.controller.in_office:
            await finish(self, link.name)
            await Upkeep(self).tend(link)
        else:
            link.problems.clear()  # the controller names them
        await copy_groups(self, link)

    # --- what copying needs of the metadata ------------------------------------------------------------

    def _raise_epoch(self, partition: Partition, epoch: int) -> None:
        key = (partition.topic, partition.index)
        self._wanted_epochs[key] = max(epoch, self._wanted_epochs.get(key, -1))
        self._woken.set()

    async def _change_always(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            wanted, self._wanted_epochs = self._wanted_epochs, {}
            try:
                if wanted:
                    await self.raise_epochs(wanted)
                if self._links and not self._are_ids_apart:
                    await self._keep_ids_apart()
            except ApiError as error:
                log.warning(
                    "the metadata that links need cannot be changed; it is tried again",
                    extra={"reason": error.message},
                )
                for key, epoch in wanted.items():
                    self._wanted_epochs.setdefault(key, epoch)
                await asyncio.sleep(RETRY_S)
                self._woken.set()
            except Exception:
                log.exception("a change of metadata for links met a bug")
                await asyncio.sleep(RETRY_S)

    async def raise_epochs(self, wanted: Mapping[tuple[str, int], int]) -> None:
        """Raise the leader epochs of partitions to at least these. Raises ApiError."""
        controller = self.controller
        await controller.run(
            lambda: controller.change_states(lambda: decide_epochs(controller.image, wanted))
        )

    # --- describing ------------------------------------------------------------------------------------

    def describe(self, names: Iterable[str] | None) -> list[DescribedLink]:
        """The links, with the partitions that this broker leads."""
        image = self.controller.image
        known = sorted(name for kind, name in image.configs if kind == KIND)
        wanted = known if names is None else [name for name in names if name in known]
        return [
            describe(image, name, self._links.get(name), self._broken.get(name, ""), self.clock.now_ms())
            for name in wanted
        ]

    async def partitions_of(self, name: str) -> dict[tuple[str, int], LinkPartition]:
        """The partitions of a link on all brokers that answer."""
        rows = [row for link in self.describe((name,)) for row in link.partitions]
        others = [node for node in self.controller.image.brokers if node != self.controller.node_id]
        for partition_rows in await asyncio.gather(*(self._ask(node, name) for node in others)):
            rows += partition_rows
        return {(row.topic, row.partition): row for row in rows}

    async def _ask(self, node: int, name: str) -> list[LinkPartition]:
        try:
            answer: DescribeLinksResponse = await self._peers.call(
                node, DescribeLinksRequest(names=[name]), DESCRIBE_VERSION, PEER_TIMEOUT_S
            )
        except PeerLost:
            return []
        return [row for link in answer.links for row in link.partitions]

    def running(self, name: str) -> Link | None:
        """A link that runs on this broker."""
        return self._links.get(name)
