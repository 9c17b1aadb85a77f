"""The way back after a promotion: what reverse and failback would do to each partition, and both of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from barnabas.admin import Admin
from barnabas.admin.families.links import Link
from barnabas.admin.returning import NotYet, WayBack, way_back
from barnabas.client.errors import BrokerUnavailable, ClientError
from barnabas.console.asking import Ask, Done
from barnabas.console.pages.mirrors.reading import LINK_STATES, client_lines, link_of, summary_of
from barnabas.console.pages.mirrors.verifying import source_options
from barnabas.console.rendering import encoded
from barnabas.console.roles import Role
from barnabas.console.said import Refused, said
from barnabas.console.site import Action, Data, Page

MOVES: Final = ("failback", "reverse")
WAIT_S: Final = 30.0
"""How long a request waits for the source to catch up; a failback that is asked for again goes on."""
T = TypeVar("T")


async def read(ask: Ask) -> Data:
    """A promoted link whose source may be brought back"""
    link = await link_of(ask)
    return {
        "link": link.name,
        "summary": summary_of(link),
        "where": ask.cluster.where,
        "states": LINK_STATES,
        "commands": [ask.command("mirror", "link", word, link.name, "--preview") for word in MOVES],
    }


async def _with_both(ask: Ask, link: Link, move: str, what: Callable[[WayBack], T]) -> T:
    """What a function makes of the way back. Both sides are administered in a thread. Raises Refused, ClientError."""

    def run() -> T:
        with Admin(source_options(ask, link)) as source, Admin(ask.cluster.patient) as target:
            return what(way_back(link, source, target, may_go_on=move == "failback"))

    try:
        return await asyncio.to_thread(run)
    except BrokerUnavailable as error:
        raise Refused(
            502,
            said("A cluster cannot be reached from here: {reason}", reason=str(error)),
            said("If it asks for a login, name it to the console with --also NAME=FILE."),
        ) from None
    except NotYet as error:
        raise Refused(503, said("It is not done yet: {reason}", reason=str(error))) from None
    except ClientError as error:
        raise Refused(409, said("{reason}", reason=str(error))) from None


def _move_of(ask: Ask) -> str:
    move = ask.text("move", "failback")
    if move not in MOVES:
        raise Refused(400, said("{name} must be one of {choices}", name="move", choices=", ".join(MOVES)))
    return move


def _words(ask: Ask, link: Link, move: str) -> list[str]:
    words = ["mirror", "link", move, link.name]
    if ask.text("back_from"):
        words += ["--back-from", ask.text("back_from")]
    return words + ["--back-config", "FILE"] * bool(client_lines(ask))


async def preview(ask: Ask) -> Done:
    """What would be removed at the source, and copied to it: move (failback, reverse)"""
    link, move = await link_of(ask), _move_of(ask)
    parted = await _with_both(ask, link, move, WayBack.partings)
    removed = sum(row.removed for row in parted)
    return Done(
        said("{removed} offsets would be removed at the source, and {copied} copied to it",
             removed=removed, copied=sum(row.to_copy for row in parted)),
        "",
        {"move": move, "partings": [row.row() for row in parted], "removed": removed},
        (ask.command(*_words(ask, link, move), "--preview"),),
    )  # fmt: skip


async def bring_back(ask: Ask) -> Done:
    """Bring the source back: move (failback: it becomes the primary again; reverse: it becomes a copy of this cluster),
    back_from (where its brokers reach this cluster), client (lines OPTION=VALUE with which they do)"""
    link, move = await link_of(ask), _move_of(ask)
    reach = {**client_lines(ask), "bootstrap.servers": ask.text("back_from") or ask.cluster.where}
    if move == "reverse":
        await _with_both(ask, link, move, lambda way: way.reverse(reach))
        message, where = said("{source} becomes a copy of this cluster, by a link of the same name that is stored there",
                           source=link.source), "/mirrors"  # fmt: skip
    else:
        await _with_both(ask, link, move, lambda way: way.fail_back(reach, WAIT_S))
        message, where = (
            said("{source} can be written again, and is copied here", source=link.source),
            f"/mirrors/{encoded(link.name)}",
        )
    return Done(message, where, {"link": link.name, "move": move}, (ask.command(*_words(ask, link, move)),))


PAGE: Final = Page(
    "mirrors", "/mirrors/{link}/return", "mirrors", read, Role.ADMIN, "link", "return.html",
    actions=(
        Action("/mirrors/{link}/return/preview", preview, Role.ADMIN, "link", is_change=False),
        Action("/mirrors/{link}/return", bring_back, Role.ADMIN, "link"),
    ),
)  # fmt: skip
