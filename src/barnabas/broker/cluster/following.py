"""Keeps this broker's image equal to the metadata tree: reads what has changed, replays it, tells the partitions.

Events of the tree are only hints: what belongs together (a topic, a broker, an entity's options, the controller) is read
anew, and what was read counts. This broker's own changes cause events as well; these are counted and ignored, so that
nothing is read because of them.

A topic becomes visible as a whole. Its nodes are replayed onto a draft, its partitions are created, and only then
is it added to the image, in one turn of the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.broker.cluster.reading import Nodes, read_node, replay, replayed
from barnabas.coordination.tree import BadVersion, NodeExists, NoNode, NotEmpty
from barnabas.cores import acl, tokens
from barnabas.cores import znode_layout as layout
from barnabas.cores.binning import into_the_bin, resting
from barnabas.cores.cluster_image import ClusterImage, TopicImage
from barnabas.cores.controller import decide_completion, decide_emptying, decide_removal
from barnabas.cores.znode_ops import Check, Op, chunks

if TYPE_CHECKING:
    from uuid import UUID

    from barnabas.broker.cluster.followers import Followers
    from barnabas.coordination.tree import ZnodeTree
    from barnabas.cores.znode_layout import Broker

log = logging.getLogger("barnabas.controller")

DECISIONS_MAX: Final = 5
STATES_PER_READ: Final = 250
OTHERS_WERE_QUICKER: Final = (BadVersion, NodeExists, NoNode, NotEmpty)


class ImageKeeper:
    """See the module. The executor calls it, one step at a time."""

    tree: ZnodeTree

    def __init__(
        self, image: ClusterImage, fresh_uuid: Callable[[], UUID], in_office: Callable[[], bool]
    ) -> None:
        """in_office: whether this broker is the controller, which completes and removes topics."""
        self.image = image
        self.followers: Followers | None = None
        self._in_office = in_office
        self._fresh_uuid = fresh_uuid
        # By path: reported changes minus our own changes. Above 0, somebody else has changed the node.
        self._unexplained: dict[str, int] = {}
        self._heard: set[str] = set()
        self._settling = False
        self._settles = False

    # --- what was heard, and what this broker itself has done --------------------------------------------

    def _count(self, path: str, changes: int) -> None:
        count = self._unexplained.get(path, 0) + changes
        if count:
            self._unexplained[path] = count
        else:
            self._unexplained.pop(path, None)

    async def _apply(self, chunk: Sequence[Op], image: ClusterImage) -> None:
        """Change the tree, replay the changes, and expect the events that they cause. Raises TreeError."""
        results = await self.tree.multi(chunk)
        for op in chunk:
            if not isinstance(op, Check):
                self._count(op.path, -1)
        image.apply(chunk, results)

    async def _follow_others(self) -> None:
        """Read again what others have changed. For a visible topic, only the changed states are read."""
        heard, self._heard = self._heard, set()
        changed: set[str] = set()
        states: list[tuple[str, int]] = []
        for path in heard:
            if self._unexplained.get(path, 0) <= 0:
                continue
            del self._unexplained[path]
            partition = layout.state_of_path(path)
            if partition is not None and self._is_shown(*partition):
                states.append(partition)
                continue
            entity = layout.entity_of(path)
            if entity is not None:
                changed.add(entity)
        # Brokers before partitions: a partition's new leader may have registered just now.
        for entity in sorted(changed):
            await self.refresh(entity)
        if states:
            await self._refresh_states(sorted(states))

    def _is_shown(self, topic: str, index: int) -> bool:
        partition = self.image.partition(topic, index)
        return partition is not None and partition.partition_epoch >= 0

    async def _refresh_states(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Read the leaders and in-sync replicas of some partitions."""
        for begin in range(0, len(partitions), STATES_PER_READ):
            part = partitions[begin : begin + STATES_PER_READ]
            paths = [layout.state_path(*partition) for partition in part]
            states = await asyncio.gather(*map(self._read, paths))
            changed: list[tuple[str, int]] = []
            for partition, path, nodes in zip(part, paths, states, strict=True):
                known = self.image.partition(*partition)
                if path not in nodes or known is None:
                    await self.refresh(layout.topic_path(partition[0]))
                    continue
                data, stat = nodes[path]
                if stat.version > known.partition_epoch:
                    replay(self.image, path, data, stat)
                    changed.append(partition)
            if self.followers is not None and changed:
                self.followers.partitions_changed(changed)

    # --- reading ---------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read the whole tree and apply all differences to the image. Raises TreeError."""
        self._unexplained.clear()
        self._heard.clear()
        fresh = await replayed(await self.tree.subtree("/"))
        image = self.image
        image.cluster_id = fresh.cluster_id
        image.secret = fresh.secret or image.secret
        known, image.brokers = image.brokers, fresh.brokers
        self._tell_of_registrations(known)
        image.controller_id = fresh.controller_id
        image.controller_epoch = fresh.controller_epoch
        image.controller_epoch_version = fresh.controller_epoch_version
        image.deleting, image.marks, image.bin = fresh.deleting, fresh.marks, fresh.bin
        image.take_asked(fresh)
        image.changes += 1
        for kind, name in image.configs.keys() | fresh.configs.keys():
            self._take_config(kind, name, fresh)
        self._take_acls(image.acls.keys() | fresh.acls.keys(), fresh)
        for token_id in image.tokens.keys() | fresh.tokens.keys():
            image.take_token(token_id, fresh)
        for topic in [topic for topic in image.topics.values() if topic.name not in fresh.topics]:
            await self._hide(topic)
        for topic in fresh.topics.values():
            if image.topics.get(topic.name) != topic:
                await self.show(topic)

    async def finish_interrupted(self) -> None:
        """As controller, complete topics whose creation was interrupted, and remove those whose deletion was."""
        if not self._in_office():
            return
        for name in sorted(self.image.deleting):
            await self.refresh(layout.topic_path(name))
        for topic in [topic for topic in self.image.topics.values() if not topic.is_complete]:
            await self.refresh(layout.topic_path(topic.name))
        # What is visible has been restored: its node in the bin was left by a controller that died.
        await self._empty_bin([topic_id for topic_id in self.image.bin if topic_id in self.image.by_id])

    async def _empty_bin(self, topic_ids: Sequence[UUID]) -> None:
        try:
            for chunk in chunks(decide_emptying(self.image, topic_ids)):
                await self._apply(chunk, self.image)
        except OTHERS_WERE_QUICKER as error:
            log.info("the bin is emptied by others as well", extra={"reason": str(error)})

    async def refresh(self, entity: str) -> None:
        """Read one entity (layout.entity_of) and apply the differences. Raises TreeError."""
        if entity.startswith(layout.TOPICS + "/"):
            await self._refresh_topic(entity.rpartition("/")[2])
        elif entity.startswith(layout.DELETED_TOPICS + "/"):
            await self._refresh_binned(entity)
        elif entity.startswith("/config/"):
            _, kind, name = entity[1:].split("/", 2)
            fresh = await replayed(await self._read(entity))
            self._take_config(kind, name, fresh)
        elif (resource := acl.resource_of(entity)) is not None:
            self._take_acls((resource,), await replayed(await self._read(entity)))
        elif (token_id := tokens.token_id_of(entity)) is not None:
            self.image.take_token(token_id, await replayed(await self._read(entity)))
        elif entity.startswith(layout.BROKER_IDS + "/"):
            broker_id = int(entity.rpartition("/")[2])
            fresh = await replayed(await self._read(entity))
            was = self.image.brokers.pop(broker_id, None)
            self.image.changes += 1
            now = fresh.brokers.get(broker_id)
            if was is not None and now is None:
                self._tell_of_registrations({broker_id: was}, broker_id)
            if was is not None and (now is None or now.epoch != was.epoch):
                # A broker that has restarted since the last look is treated as gone first: it may have lost records.
                await self._settle()
            if now is not None:
                self.image.brokers[broker_id] = now
                self.image.changes += 1
                self._tell_of_registrations({} if was is None else {broker_id: was}, broker_id)
                await self._settle()
        elif entity in layout.ASKED:
            both = await asyncio.gather(*map(self._read, layout.ASKED))
            self.image.take_asked(await replayed({**both[0], **both[1]}))
            await self._settle()
        else:
            await self._refresh_controller()
            await self._settle()

    def _tell_of_registrations(self, known: Mapping[int, Broker], *ids: int) -> None:
        """Tell the followers which brokers (of `ids`, or of all) have come or gone since `known`, before anything else."""
        for broker_id in ids or sorted(self.image.brokers.keys() | known.keys()):
            now, was = self.image.brokers.get(broker_id), known.get(broker_id)
            epoch = None if now is None else now.epoch
            if self.followers is not None and epoch != (None if was is None else was.epoch):
                self.followers.broker_registered(broker_id, epoch)

    async def _refresh_controller(self) -> None:
        nodes = {**await self._read(layout.CONTROLLER), **await self._read(layout.CONTROLLER_EPOCH)}
        fresh = await replayed(nodes)
        self.image.controller_id = fresh.controller_id
        self.image.controller_epoch = fresh.controller_epoch
        self.image.controller_epoch_version = fresh.controller_epoch_version
        self.image.changes += 1

    async def _settle(self) -> None:
        """Let the followers settle; again afterwards when the session or others have changed something meanwhile: a broker
        whose session ends while it settles has to register again."""
        if self._settling:
            self._settles = True
        elif self.followers is not None:
            self._settling = True
            try:
                await self.followers.settle()
            finally:
                self._settling = False

    async def _read(self, path: str) -> Nodes:
        return await read_node(self.tree, path)

    def _take_config(self, kind: str, name: str, fresh: ClusterImage) -> None:
        has_changed = self.image.configs.get((kind, name)) != fresh.configs.get((kind, name))
        self.image.take_config(kind, name, fresh)
        if not has_changed:
            return
        self.image.changes += 1
        if self.followers is not None:
            self.followers.config_changed(kind, name)

    def _take_acls(self, resources: Iterable[acl.Resource], fresh: ClusterImage) -> None:
        changed = [resource for resource in resources if self.image.take_acls(resource, fresh)]
        if changed and self.followers is not None:
            self.followers.acls_changed(changed)

    # --- topics ----------------------------------------------------------------------------------------

    async def _refresh_topic(self, name: str) -> None:
        nodes = await self.tree.subtree(layout.topic_path(name))
        mark = await self._read(layout.deletion_path(name))
        if mark:
            self.image.deleting.add(name)
            for path, (data, stat) in mark.items():
                replay(self.image, path, data, stat)
            if self._in_office():
                await self.remove_topic(name)
            elif name in self.image.topics:
                await self._hide(self.image.topics[name])
            return
        self._unmark(name)
        was = self.image.topics.get(name)
        topic = (await replayed(nodes)).topics.get(name)
        if topic is None:
            if was is not None:
                await self._hide(was)
            return
        if topic != was:
            await self._refresh_config("topics", name)
        if not topic.is_complete and self._in_office():
            topic = await self._completed(topic, nodes)
        elif not topic.is_complete and was is None:
            return  # its creator or the controller will complete it, which causes another event
        if topic != was:
            await self.show(topic)

    async def _refresh_config(self, kind: str, name: str) -> None:
        await self.refresh(layout.config_path(kind, name))

    async def _completed(self, topic: TopicImage, nodes: Nodes) -> TopicImage:
        """Create the nodes that a topic lacks. If others are quicker, the events of their changes lead here again."""
        draft = ClusterImage()
        draft.adopt(topic)
        try:
            for chunk in chunks(decide_completion(self.image, topic, nodes.keys(), self._fresh_uuid())):
                await self._apply(chunk, draft)
        except OTHERS_WERE_QUICKER as error:
            log.info("a topic is being completed by another broker", extra={"reason": str(error)})
        else:
            log.warning(
                "a topic that was made in part is complete now",
                extra={"topic": topic.name, "partitions": len(topic.partitions)},
            )
        return draft.topics[topic.name]

    async def show(self, topic: TopicImage) -> None:
        """Create a topic's partitions, then make it visible in place of what was known under its name."""
        was = self.image.topics.get(topic.name)
        if was is not None and was.topic_id != topic.topic_id:
            await self._hide(was)
        if self.followers is not None:
            await self.followers.topic_changed(topic)
        self.image.adopt(topic)

    async def _hide(self, topic: TopicImage) -> None:
        # The logs of a topic that rests in the bin are kept. Its mark may be gone before this broker heard of it.
        if topic.topic_id not in self.image.bin:
            await self._refresh_binned(layout.binned_path(topic.topic_id))
        self.image.forget(topic.name)
        if self.followers is not None:
            await self.followers.topic_gone(topic)

    async def _refresh_binned(self, path: str) -> None:
        nodes = await self._read(path)
        if not nodes:
            self.image.remove(path)
        for node_path, (data, stat) in nodes.items():
            replay(self.image, node_path, data, stat)

    def _unmark(self, name: str) -> None:
        self.image.deleting.discard(name)
        self.image.marks.pop(name, None)

    def _removal(self, name: str, nodes: Nodes) -> Iterable[Op]:
        """Remove the nodes of a topic that is marked for deletion; first copy them into the bin, if the mark says so."""
        removal = decide_removal(self.image, name, nodes.keys())
        mark = self.image.marks.get(name)
        if mark is None:
            return removal
        versions = {path: (data, stat.version) for path, (data, stat) in nodes.items()}
        try:
            topic = resting(self.image, name, mark, versions)
        except layout.BadPayload as error:
            log.error(
                "a deleted topic cannot be restored: its nodes are damaged", extra={"reason": str(error)}
            )
            return removal
        return removal if topic is None else into_the_bin(self.image, topic, removal, versions)

    async def remove_topic(self, name: str) -> None:
        """Hide a topic that is marked for deletion, then remove its nodes, the mark last. Raises TreeError.

        After a crash the mark is still there, and the next start continues.
        """
        topic = self.image.topics.get(name)
        if topic is not None:
            await self._hide(topic)
        for _ in range(DECISIONS_MAX):
            nodes = await self.tree.subtree(layout.topic_path(name))
            await self._refresh_config("topics", name)
            try:
                for chunk in chunks(self._removal(name, nodes)):
                    await self._apply(chunk, self.image)
                return
            except OTHERS_WERE_QUICKER as error:
                log.info("a topic is removed by others as well", extra={"reason": str(error)})
                if await self.tree.exists(layout.deletion_path(name)) is None:
                    self._unmark(name)
                    return
        log.error("a deleted topic's nodes stay until the next start", extra={"topic": name})
