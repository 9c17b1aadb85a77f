"""The bin of deleted topics: what can be restored, until when; and what goes for good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.admin import DeletedTopic
from barnabas.client.errors import UnsupportedByBroker
from barnabas.console.asking import Ask, Done
from barnabas.console.pages.topics import NAME
from barnabas.console.rendering import encoded
from barnabas.console.roles import Role, require
from barnabas.console.said import Refused, said
from barnabas.console.site import Action, Data, Page
from barnabas.wire.uuids import uuid_text


async def read(ask: Ask) -> Data:
    """The deleted topics that can be restored; has_bin is false for clusters that delete topics at once"""
    try:
        deleted: Sequence[DeletedTopic] = await ask.admin.topic_bin.list()
    except UnsupportedByBroker:
        return {"has_bin": False, "topics": [], "size_bytes": 0, "commands": []}
    seen = [topic for topic in deleted if ask.sees(topic.name)]
    layout = await ask.cluster.layout.get()
    return {
        "has_bin": True,
        "topics": [
            {
                "name": topic.name,
                "id": uuid_text(topic.id),
                "deleted_ms": topic.deleted_ms,
                "until_ms": topic.until_ms,
                "partitions": topic.partitions,
                "size_bytes": topic.size_bytes,
                "is_name_taken": topic.name in layout.topics,
            }
            for topic in reversed(seen)
        ],
        "size_bytes": sum(topic.size_bytes for topic in seen),
        "commands": [ask.command("topic", "bin")],
    }


async def _chosen(ask: Ask) -> DeletedTopic:
    """The topic that a form means. Raises Refused."""
    topic_id = ask.required("id")
    for topic in await ask.admin.topic_bin.list():
        if topic_id in (uuid_text(topic.id), str(topic.id)):
            require(ask.role_for(topic.name), Role.ADMIN, ask.user)
            return topic
    raise Refused(
        404,
        said("This topic is not in the bin any more"),
        said("Somebody has restored it, or its time was over."),
    )


async def restore(ask: Ask) -> Done:
    """Bring a deleted topic back with its records, options and the groups' offsets: id, name (that which it gets)"""
    topic = await _chosen(ask)
    name = ask.text("name", topic.name)
    if not NAME.fullmatch(name):
        raise Refused(400, said("{name} cannot be the name of a topic", name=name[:100]))
    require(ask.role_for(name), Role.ADMIN, ask.user)
    await ask.admin.topic_bin.restore(topic.id, name)
    words = ["topic", "restore", uuid_text(topic.id), *(["--as", name] if name != topic.name else [])]
    return Done(said("The topic {name} is back", name=name), f"/topics/{encoded(name)}",
                {"topic": name, "was": topic.name, "id": uuid_text(topic.id)}, (ask.command(*words),))  # fmt: skip


async def purge(ask: Ask) -> Done:
    """Remove a deleted topic for good: id, confirm (the name that it had)"""
    topic = await _chosen(ask)
    if ask.text("confirm") != topic.name:
        raise Refused(400, said("Not done: type {name} to confirm", name=topic.name))
    await ask.admin.topic_bin.purge([topic.id])
    return Done(said("The topic {name} has gone for good", name=topic.name), "/bin",
                {"topic": topic.name, "id": uuid_text(topic.id)},
                (ask.command("topic", "purge", uuid_text(topic.id)),))  # fmt: skip


PAGES: Final = (
    Page(
        "bin", "/bin", "topics", read, actions=(Action("/bin/restore", restore), Action("/bin/purge", purge))
    ),
)
