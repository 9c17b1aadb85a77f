"""What a page is, and how requests reach it: as HTML for people, as JSON for programs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.console.asking import Ask, Done
from barnabas.console.roles import Role

Data = Mapping[str, Any]
Read = Callable[[Ask], Awaitable[Data]]
Change = Callable[[Ask], Awaitable[Done]]
Stream = Callable[[Ask], AsyncIterator[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Action:
    """A change: POST with a form's fields (pages) or a JSON object (the API).

    path: below the cluster's. named: the field of the path whose role counts; None: the cluster's own.
    is_change: False for what only looks (a preview); it is not audited. shows: its result is shown on the page that has the
    form, as that of a preview is.
    """

    path: str
    run: Change
    needs: Role = Role.ADMIN
    named: str | None = None
    is_change: bool = True
    shows: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """One page. folder: of `pages/`, with its template `page.html`, or `template` of it. path: below the cluster's.

    section: the entry of the menu that it belongs to. read: its data, plain enough for JSON; the docstring's first line
    describes it in the API.
    streams: paths of server-sent events with what makes them.
    exports: the same as lines of JSON. rows: the template that makes rows of HTML of an event's `records`.
    """

    folder: str
    path: str
    section: str
    read: Read
    needs: Role = Role.READ
    named: str | None = None
    template: str = "page.html"
    actions: Sequence[Action] = ()
    streams: Mapping[str, Stream] | None = None
    exports: Mapping[str, Stream] | None = None
    rows: str | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """An entry of the menu. path: below the cluster's. icon: of the sprite in the layout."""

    name: str
    title: str
    path: str
