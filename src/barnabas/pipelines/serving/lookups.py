"""Lookups in the views of a server's pipelines.

A view is read from its file, whether its pipeline runs or not: what it says is as of the micro-batch that the answer names.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from barnabas.pipelines.kinds.targets.view import view_file
from barnabas.pipelines.plan.errors import suggestion
from barnabas.pipelines.spark.folders import join, local_path
from barnabas.pipelines.views.columns import BadKey
from barnabas.pipelines.views.lookup import ROWS_MAX, Asked, LookupPage, NothingYet, Reader
from barnabas.pipelines.views.store import Note, ViewShape, file_bytes, shape_and_note
from barnabas.pipelines.views.stores import store_file

if TYPE_CHECKING:
    from barnabas.pipelines.plan.outputs import Output
    from barnabas.pipelines.serving.managed import Managed

PARAMETERS: Final = ("key", "from", "to", "window", "limit", "after")
READERS_MAX: Final = 256


class BadLookup(Exception):
    """A lookup cannot be understood; the message says what one looks like."""


@dataclass(frozen=True, slots=True)
class _View:
    """A view of a pipeline, and its file."""

    managed: Managed
    output: Output
    path: Path
    name: str

    @property
    def label(self) -> str:
        """Its name for users."""
        return f"{self.managed.spec.name}/{self.name}"


class Pipelines(Protocol):
    """Pipelines by name."""

    def get(self, name: str) -> Managed:
        """Raises KeyError with a message for users."""
        ...


class Lookups:
    """The views of pipelines. Methods may be called from any thread."""

    def __init__(self, manager: Pipelines) -> None:
        self.manager = manager
        self._readers: dict[Path, Reader] = {}
        self._lock = threading.Lock()

    def listing(self, name: str) -> list[dict[str, Any]]:
        """The views of a pipeline: key, fields, as of when, bytes. Raises KeyError, ViewError."""
        return [self._described(view) for view in self._views(name)]

    def find(self, name: str, view_name: str, asked: Asked) -> str:
        """The answer to a lookup, as JSON text. Raises KeyError, BadLookup, NothingYet, TooSlow, ViewError."""
        view = self._view(name, view_name)
        try:
            page = self._reader(view.path).find(asked)
        except BadKey as error:
            raise BadLookup(f"view {view.label}: {error}") from None
        except NothingYet:
            raise NothingYet(
                f"view {view.label} has no rows yet: its first micro-batch has not ended; the pipeline is "
                f"{view.managed.state}"
            ) from None
        return _answer(view, page)

    def _views(self, name: str) -> list[_View]:
        managed = self.manager.get(name)
        spec = managed.spec
        views = []
        for output in spec.outputs:
            place = join(managed.checkpoints, output.name)
            if output.target is not None and output.target.kind == "view":
                views.append(_View(managed, output, view_file(spec, output, place), output.name))
            local = local_path(place)
            if output.stores is not None and local is not None:
                views += [
                    _View(managed, output, store_file(local, store), store) for store in output.stores.layouts
                ]
        return views

    def _view(self, name: str, view_name: str) -> _View:
        """Raises KeyError with a message that lists the views."""
        views = {view.name: view for view in self._views(name)}
        if view_name in views:
            return views[view_name]
        if not views:
            raise KeyError(
                f"pipeline {name} has no views: give an output `view` in place of a topic or another target, or a table "
                "of a topology in Python a name"
            )
        raise KeyError(f"pipeline {name} has no view {view_name!r}; {suggestion(view_name, views)}")

    def _reader(self, path: Path) -> Reader:
        reader = self._readers.get(path)
        if reader is not None:
            return reader
        with self._lock:
            if len(self._readers) >= READERS_MAX:
                self._readers.pop(next(iter(self._readers))).close()
            return self._readers.setdefault(path, Reader(path))

    def _described(self, view: _View) -> dict[str, Any]:
        about: dict[str, Any] = {"view": view.label, "name": view.name, "bytes": file_bytes(view.path)}
        shape_and_note_ = shape_and_note(view.path)
        if shape_and_note_ is None:
            return about | {"key": None, "window": None, "fields": None, "as_of": None}
        shape, note = shape_and_note_
        return about | {
            "key": [{"name": column.name, "type": column.kind} for column in shape.plain_key],
            "window": _window(shape),
            "fields": {column.name: column.kind for _, column in shape.shown},
            "as_of": as_of(view.managed, view.output.name, note),
        }


def _window(shape: ViewShape) -> dict[str, Any] | None:
    if shape.window is None:
        return None
    length = None if shape.window_us is None else shape.window_us / 1_000_000
    return {"start": shape.window, "end": shape.end, "seconds": length}


def as_of(managed: Managed, query: str, note: Note) -> dict[str, Any]:
    """As of when rows are. lag: records of the source that are not in the view, of those that were there some seconds ago;
    None if unknown."""
    ends = managed.ends.get(query)
    behind = None
    if ends is not None:
        at = {
            (topic, place): offset
            for topic, places in note.offsets.items()
            for place, offset in places.items()
        }
        behind = sum(
            max(end - at[topic, place], 0)
            for topic, places in ends.items()
            for place, end in places.items()
            if (topic, place) in at
        )
    return {
        "batch": note.batch,
        "time": datetime.fromtimestamp(note.at_ms / 1000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z"),
        "seconds_ago": round(max(time.time() - note.at_ms / 1000, 0.0), 3),
        "offsets": note.offsets,
        "lag": behind,
        "state": managed.state,
    }


def _answer(view: _View, page: LookupPage) -> str:
    about = json.dumps({"view": view.label, "as_of": as_of(view.managed, view.output.name, page.note)})
    return f'{about[:-1]}, "rows": [{",".join(page.rows)}], "next": {json.dumps(page.next)}}}'


def asked_in(parameters: list[tuple[str, str]]) -> Asked:
    """What the parameters of a request ask for. Raises BadLookup."""
    values_by_name: dict[str, list[str]] = {}
    for name, value in parameters:
        if name not in PARAMETERS:
            raise BadLookup(f"a lookup has no parameter {name!r}; {suggestion(name, PARAMETERS)}")
        values_by_name.setdefault(name, []).append(value)
    for name, values in values_by_name.items():
        if name != "key" and len(values) > 1:
            raise BadLookup(f"{name} is given {len(values)} times")
    single: Mapping[str, str] = {name: values[0] for name, values in values_by_name.items()}
    limit = single.get("limit", "100")
    if not limit.isdecimal() or not limit.isascii() or not 1 <= int(limit[:9]) <= ROWS_MAX:
        raise BadLookup(f"limit is {limit[:80]!r}, not a number from 1 to {ROWS_MAX:,}")
    return Asked(
        key=tuple(values_by_name.get("key", ())),
        low=single.get("from"),
        high=single.get("to"),
        window=single.get("window"),
        limit=int(limit),
        after=single.get("after"),
    )
