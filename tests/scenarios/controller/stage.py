"""Plays stories of a cluster: each line is an event, each indented line what came of it.

start BROKER [RACK] | stop BROKER | lost BROKER (it comes back unclean)
create TOPIC PARTITIONS FACTOR | place TOPIC 1,2 2,1 | grow TOPIC COUNT | delete TOPIC
prefer TOPIC PARTITION | isr TOPIC PARTITION 1,2 | shutdown BROKER | elect [TOPIC that may elect uncleanly]
move TOPIC PARTITION 1,2 [same-factor] | cancel TOPIC PARTITION | advance (what the controller does when anything changes)
ask TOPIC-PARTITION=1,2 ... (what older tools write to /admin/reassign_partitions) | ask-preferred TOPIC-PARTITION ...
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable

from barnabas.coordination.local import LocalTree
from barnabas.cores import znode_layout as layout
from barnabas.cores.cluster_image import ClusterImage
from barnabas.cores.controller import (
    CreatePartitions,
    CreateTopic,
    decide_bootstrap,
    decide_controller,
    decide_create_partitions,
    decide_create_topic,
    decide_deletion,
    decide_removal,
)
from barnabas.cores.elections import (
    AlterIsr,
    decide_alter_isr,
    decide_asked_elections,
    decide_elections,
    decide_preferred_leader,
    decide_shutdown,
    decide_unclean_restart,
)
from barnabas.cores.reassignment import (
    Move,
    decide_advance,
    decide_asked,
    decide_moves,
    decide_overridden,
    topics_to_advance,
)
from barnabas.cores.znode_layout import Broker, Endpoint
from barnabas.cores.znode_ops import Create, Delete, Op
from barnabas.wire.errors import ApiError


class Stage:
    """One cluster in memory."""

    def __init__(self) -> None:
        self.tree = LocalTree.open(None, now_ms=lambda: 0)
        self.image = ClusterImage()
        self.made = 0
        self._change(decide_bootstrap((), "story", b"secret"))
        self._change(decide_controller(self.image, 1, 0))

    def run(self, story: str) -> str:
        """The story with what came of each event."""
        lines: list[str] = []
        for line in story.splitlines():
            if line.startswith(" "):
                continue
            lines.append(line)
            if line and not line.startswith("#"):
                lines += [f"    {row}" for row in self._play(line.split())]
        return "\n".join(lines) + "\n"

    def _play(self, words: list[str]) -> list[str]:
        before = self._partitions()
        try:
            self._change(self._ops(words[0], words[1:]))
        except ApiError as error:
            return [f"{error.code.name}: {error.message}"]
        self.image.check()
        after = self._partitions()
        changed = [text for key, text in after.items() if before.get(key) != text]
        gone = [f"{topic}-{index} gone" for topic, index in before if (topic, index) not in after]
        return changed + gone + self._asked(words)

    def _asked(self, words: list[str]) -> list[str]:
        """What is left of what older tools have asked for, after the verbs that concern it."""
        image = self.image
        rows = [f"still asked: {t}-{i}={_text(ids)}" for (t, i), ids in image.moves_asked.items()]
        if image.elections_asked_version >= 0:
            rows.append("an election is still asked for")
        return rows if words[0] in ("ask", "advance", "move", "cancel") else []

    def _ops(self, verb: str, words: list[str]) -> Iterable[Op | None]:
        image = self.image
        if verb == "start":
            endpoint = Endpoint("PLAINTEXT", "h", 9092, "PLAINTEXT")
            broker = Broker(int(words[0]), (endpoint,), words[1] if len(words) > 1 else None)
            return [Create(layout.broker_path(broker.id), layout.encode_broker(broker), ephemeral=True)]
        if verb == "stop":
            return [Delete(layout.broker_path(int(words[0])))]
        if verb == "lost":
            return decide_unclean_restart(image, int(words[0]))
        if verb == "elect":
            return decide_elections(image, words)
        if verb == "advance":
            return self._advance()
        if verb == "ask":
            moves = {_partition(at): _ids(ids) for at, _, ids in (word.partition("=") for word in words)}
            return [Create(layout.REASSIGN_PARTITIONS, layout.encode_reassignment(moves))]
        if verb == "ask-preferred":
            listed = layout.encode_partition_list(map(_partition, words))
            return [Create(layout.PREFERRED_REPLICA_ELECTION, listed)]
        if verb == "shutdown":
            return decide_shutdown(image, int(words[0]))
        return self._topic_ops(verb, words)

    def _topic_ops(self, verb: str, words: list[str]) -> Iterable[Op | None]:
        image, name = self.image, words[0]
        if verb in ("create", "place"):
            self.made += 1
            topic_id = uuid.UUID(int=self.made)
            if verb == "create":
                event = CreateTopic(name, topic_id, int(words[1]), int(words[2]))
            else:
                event = CreateTopic(
                    name, topic_id, assignments={at: _ids(each) for at, each in enumerate(words[1:])}
                )
            return tuple(decide_create_topic(image, event).ops)
        if verb == "grow":
            return tuple(decide_create_partitions(image, CreatePartitions(name, int(words[1]))).ops)
        if verb == "delete":
            nodes = asyncio.run(self.tree.subtree(layout.topic_path(name)))
            self._change(decide_deletion(image, name))
            return tuple(decide_removal(image, name, nodes))
        if verb == "prefer":
            return decide_preferred_leader(image, name, int(words[1]))
        if verb in ("move", "cancel"):
            target = _ids(words[2]) if verb == "move" else None
            move = Move(name, int(words[1]), target, factor_may_change="same-factor" not in words)
            decision = decide_moves(image, name, [move])
            for error in decision.refused.values():
                raise error
            self._change(decide_overridden(image, [move]))
            return decision.ops
        assert verb == "isr", verb
        topic, index = image.topics[name], int(words[1])
        now = topic.partitions[index]
        asked = AlterIsr(
            now.leader, topic.topic_id, index, now.leader_epoch, now.partition_epoch, _ids(words[2])
        )
        return decide_alter_isr(image, asked)

    def _advance(self) -> Iterable[Op | None]:
        self._change(decide_elections(self.image))
        self._change(decide_asked_elections(self.image))
        for topic in topics_to_advance(self.image):
            self._change(decide_advance(self.image, topic))
        return decide_asked(self.image)

    def _change(self, ops: Iterable[Op | None]) -> None:
        changes = tuple(op for op in ops if op is not None)
        self.image.apply(changes, asyncio.run(self.tree.multi(changes)))

    def _partitions(self) -> dict[tuple[str, int], str]:
        return {
            (topic.name, index): f"{topic.name}-{index} on {_text(each.replicas)}: leader "
            f"{'none' if each.leader < 0 else each.leader} epoch {each.leader_epoch} isr {_text(each.isr)}"
            + (" recovering" if each.recovering else "")
            + (f" adding {_text(each.adding)}" if each.adding else "")
            + (f" removing {_text(each.removing)}" if each.removing else "")
            for topic in self.image.topics.values()
            for index, each in topic.partitions.items()
        }


def _partition(text: str) -> tuple[str, int]:
    topic, _, index = text.rpartition("-")
    return topic, int(index)


def _ids(text: str) -> tuple[int, ...]:
    return tuple(int(row) for row in text.split(","))


def _text(ids: tuple[int, ...]) -> str:
    return ",".join(str(row) for row in ids)
