"""Links as the pages show them, and the fields that their forms share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from barnabas.admin.families.links import Link, lag_ms_of, lag_of
from barnabas.client.errors import UnsupportedByBroker
from barnabas.console.asking import Ask
from barnabas.console.said import Refused, said

STATES: Final = {"in sync": "good", "copying": "", "starting": "", "waiting": "warn", "stopped": "bad"}
LINK_STATES: Final = {"mirroring": "good", "paused": "warn", "promoted": ""}


async def links_of(ask: Ask) -> Sequence[Link]:
    """The cluster's links. Raises Refused."""
    try:
        return await ask.admin.links.describe()
    except UnsupportedByBroker:
        raise Refused(
            501,
            said("The brokers of this cluster have no links"),
            said("Links copy into brokers of Barnabas, from any Kafka; MirrorMaker runs as connectors."),
        ) from None


async def link_of(ask: Ask) -> Link:
    """The link of the path. Raises Refused."""
    name = ask.path["link"]
    mirror = next((link for link in await links_of(ask) if link.name == name), None)
    if mirror is None:
        raise Refused(404, said("There is no link {name}", name=name[:100]))
    return mirror


def known(value: int) -> int | None:
    """-1 stands for what is not known."""
    return None if value < 0 else value


def summary_of(link: Link) -> dict[str, Any]:
    """A link as the list shows it."""
    return {
        "name": link.name,
        "state": link.state,
        "source": link.source,
        "unreachable": link.unreachable or None,
        "topics": len(link.topics),
        "partitions": len(link.partitions),
        "groups": link.groups,
        "lag": lag_of(link.partitions),
        "lag_ms": lag_ms_of(link.partitions),
        "problems": len(link.problems) + sum(row.state in ("waiting", "stopped") for row in link.partitions),
    }


def topics_of(ask: Ask, link: Link) -> Iterator[dict[str, Any]]:
    """The topics of a link that the user may see, each with its partitions' lag."""
    for topic in link.topics:
        if not ask.sees(topic):
            continue
        parts = [row for row in link.partitions if row.topic == topic]
        yield {
            "topic": topic,
            "states": sorted({row.state for row in parts}),
            "partitions": len(parts),
            "lag": lag_of(parts),
            "lag_ms": lag_ms_of(parts),
            "missed": sum(row.missed for row in parts),
            "dropped": sum(row.dropped for row in parts),
            "reason": next((row.reason for row in parts if row.reason), None),
        }


def client_lines(ask: Ask) -> dict[str, str]:
    """The client's properties of the field `client`, one in a line. Raises Refused."""
    texts = {}
    for line in (ask.raw("client") or "").splitlines():
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        option, equals, value = text.partition("=")
        if not equals:
            raise Refused(400, said("{line} is not of the form OPTION=VALUE", line=text[:200]))
        texts[option.strip()] = value.strip()
    return texts
