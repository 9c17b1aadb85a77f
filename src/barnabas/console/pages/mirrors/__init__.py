"""Mirrors: links that copy topics of other clusters; how far they are; promotion and failover after a preview."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from barnabas.admin.families.links import LinkTail
from barnabas.console.asking import Ask, Done
from barnabas.console.pages.mirrors.reading import (
    LINK_STATES,
    STATES,
    client_lines,
    known,
    link_of,
    links_of,
    summary_of,
    topics_of,
)
from barnabas.console.pages.mirrors.returning import PAGE as RETURN
from barnabas.console.pages.mirrors.verifying import verify
from barnabas.console.rendering import encoded
from barnabas.console.roles import Role
from barnabas.console.said import Refused, said
from barnabas.console.site import Action, Data, Page
from barnabas.cores.links import LinkSpec
from barnabas.wire.errors import ApiError

ACTIONS: Final = ("pause", "resume", "delete")
MOVES: Final = ("promote", "failover")


async def read(ask: Ask) -> Data:
    """The links with their states and lag"""
    return {
        "links": [summary_of(link) for link in await links_of(ask) if ask.sees(link.name)],
        "states": LINK_STATES,
        "commands": [ask.command("mirror", "link", "list"), ask.command("mirror", "status")],
    }


async def read_one(ask: Ask) -> Data:
    """One link: its topics with lag in records and seconds, partitions, problems, options without secrets"""
    link = await link_of(ask)
    options = {name: value for name, value in sorted(link.options.items()) if value not in ("", "-1")}
    return {
        "link": link.name,
        "summary": summary_of(link),
        "topics": list(topics_of(ask, link)),
        "partitions": [
            {
                "topic": row.topic, "partition": row.partition, "state": row.state, "reason": row.reason or None,
                "start": row.log_start, "end": row.log_end, "source_end": known(row.source_end), "lag": known(row.lag),
                "lag_ms": known(row.lag_ms), "open_transactions": row.open_transactions,
            }
            for row in link.partitions
            if ask.sees(row.topic)
        ],
        "problems": dict(link.problems),
        "options": options,
        "states": STATES,
        "link_states": LINK_STATES,
        "commands": [
            ask.command("mirror", "link", "status", link.name),
            ask.command("mirror", "verify", link.name),
            ask.command("mirror", "link", "promote", link.name, "--preview"),
        ],
    }  # fmt: skip


# --- changes ----------------------------------------------------------------------------------------------


def _spec(ask: Ask) -> LinkSpec:
    texts = {"bootstrap.servers": ask.required("source"), **client_lines(ask)}
    hours = ask.number("hours", 0, 0, 1_000_000)
    spec = LinkSpec(
        ask.required("name"),
        texts,
        ask.required("topics"),
        ask.text("topics_exclude"),
        ask.text("groups"),
        start_ms=int((time.time() - hours * 3600) * 1000) if hours else -1,
        acls=ask.flag("acls"),
        takes_over=ask.flag("takes_over"),
    )
    try:
        spec.check()
    except ApiError as error:
        raise Refused(400, said("{reason}", reason=error.message)) from None
    return spec


def _words(ask: Ask, spec: LinkSpec) -> list[str]:
    words = [
        "mirror",
        "link",
        "create",
        spec.name,
        "--from",
        spec.source["bootstrap.servers"],
        "--topics",
        spec.topics,
    ]
    words += ["--groups", spec.groups] if spec.groups else []
    words += ["--exclude-topics", spec.topics_exclude] if spec.topics_exclude else []
    words += ["--config", "FILE"] if len(spec.source) > 1 else []
    return words + ["--acls"] * spec.acls + ["--take-over"] * spec.takes_over


async def check(ask: Ask) -> Done:
    """Look whether a link could be created: the fields of its creation"""
    spec = _spec(ask)
    await ask.admin.links.create(spec.name, spec.texts(), validate_only=True)
    return Done(
        said("The link can be created"),
        "",
        {"is_good": True},
        (ask.command(*_words(ask, spec), "--preview"),),
    )


async def create(ask: Ask) -> Done:
    """Create a link: name, source (HOST:PORT,...), topics, topics_exclude, groups (regular expressions), hours (how old the
    oldest copied records may be), acls, takes_over, client (lines OPTION=VALUE with which the source is reached)"""
    spec = _spec(ask)
    await ask.admin.links.create(spec.name, spec.texts())
    return Done(
        said("The link {name} is created", name=spec.name),
        f"/mirrors/{encoded(spec.name)}",
        {"link": spec.name},
        (ask.command(*_words(ask, spec)),),
    )


async def act(ask: Ask) -> Done:
    """Pause, resume or delete a link: action; confirm (the name) to delete it"""
    name, action = ask.path["link"], ask.required("action")
    if action not in ACTIONS:
        raise Refused(400, said("{name} must be one of {choices}", name="action", choices=", ".join(ACTIONS)))
    if action == "delete" and ask.required("confirm") != name:
        raise Refused(400, said("What was typed is not the name {name}", name=name))
    links = ask.admin.links
    await {"pause": links.pause, "resume": links.resume, "delete": links.delete}[action](name)
    done = said("{name}: {action} is done", name=name, action=action)
    where = f"/mirrors/{encoded(name)}"
    if action == "delete":
        done, where = said("The link {name} is deleted", name=name), "/mirrors"
    return Done(done, where, {"link": name, "action": action}, (ask.command("mirror", "link", action, name),))


async def read_promote(ask: Ask) -> Data:
    """What of a link can be promoted"""
    link = await link_of(ask)
    return {
        "link": link.name,
        "summary": summary_of(link),
        "topics": [topic for topic in link.topics if ask.sees(topic)],
        "states": LINK_STATES,
        "commands": [ask.command("mirror", "link", word, link.name, "--preview") for word in MOVES],
    }


async def _move(ask: Ask, *, only_looks: bool) -> tuple[Sequence[LinkTail], list[str]]:
    move = ask.text("move", "promote")
    if move not in MOVES:
        raise Refused(400, said("{name} must be one of {choices}", name="move", choices=", ".join(MOVES)))
    chosen = [topic for topic in ask.texts("topic") if topic]
    tails = await ask.admin.links.promote(
        ask.path["link"], chosen or None, without_source=move == "failover", validate_only=only_looks
    )
    words = ["mirror", "link", move, ask.path["link"]]
    for topic in chosen:
        words += ["--topic", topic]
    return tails, words


def _tails(tails: Sequence[LinkTail]) -> list[dict[str, Any]]:
    return [
        {
            "topic": tail.topic, "partition": tail.partition, "end": tail.mirrored_end, "source_end": known(tail.source_end),
            "not_copied": tail.unmirrored, "open_transactions": tail.open_transactions,
        }
        for tail in tails
    ]  # fmt: skip


async def preview(ask: Ask) -> Done:
    """What a promotion would do to each partition, and what would be missing: move (promote, failover), topic (repeated)"""
    tails, words = await _move(ask, only_looks=True)
    rows = _tails(tails)
    return Done(
        said("{count} topics would be writable", count=len({tail.topic for tail in tails})),
        "",
        {"move": ask.text("move", "promote"), "tails": rows, "lost": sum(row["not_copied"] for row in rows)},
        (ask.command(*words, "--preview"),),
    )


async def promote(ask: Ask) -> Done:
    """Make copies writable: move (promote: everything has been copied; failover: the source is gone), topic (repeated)"""
    tails, words = await _move(ask, only_looks=False)
    lost = sum(tail.unmirrored for tail in tails)
    return Done(
        said("{count} topics are writable; {lost} offsets of the source were not copied",
             count=len({tail.topic for tail in tails}), lost=lost),
        f"/mirrors/{encoded(ask.path['link'])}",
        {"link": ask.path["link"], "tails": _tails(tails), "lost": lost},
        (ask.command(*words),),
    )  # fmt: skip


ONE: Final = "/mirrors/{link}"
PAGES: Final = (
    Page(
        "mirrors", "/mirrors", "mirrors", read,
        actions=(Action("/mirrors", create), Action("/mirrors/check", check, is_change=False)),
    ),
    Page(
        "mirrors", f"{ONE}/promote", "mirrors", read_promote, Role.ADMIN, "link", "promote.html",
        actions=(
            Action(f"{ONE}/preview", preview, Role.ADMIN, "link", is_change=False),
            Action(f"{ONE}/promote", promote, Role.ADMIN, "link"),
        ),
    ),
    RETURN,
    Page(
        "mirrors", ONE, "mirrors", read_one, named="link", template="one.html",
        actions=(Action(f"{ONE}/act", act, Role.ADMIN, "link"),),
        streams={f"{ONE}/verify": verify}, rows="mirrors/ranges.html",
    ),
)  # fmt: skip
