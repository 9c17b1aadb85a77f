"""Checks pipeline files without running them: what is wrong at which line, what may grow for ever, and the picture."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final

from barnabas.pipelines.compiler.changes import Change
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.plan.growth import growing_state
from barnabas.pipelines.plan.picture import picture
from barnabas.pipelines.plan.pipeline import PipelineSpec
from barnabas.pipelines.serving.manager import Manager

NAME: Final = "pipeline"
"""What the file is called in messages."""
PLACE: Final = re.compile(rf"^{NAME}:(\d+)(?::(\d+))?: ")


def _sentence(change: Change, cost: Callable[[str], str]) -> str:
    """What a change means for a pipeline that runs. cost: of a query that has to be rebuilt."""
    if change.is_new:
        return f"query {change.query} is new"
    what = f"query {change.query} changes ({', '.join(change.changed) or 'its relations or outputs'})"
    if change.lost:
        lost = f"cannot go on with its state: {change.lost}; it must be rebuilt from the earliest record"
        return f"{what} and {lost}{cost(change.query)}"
    kept = f"keeps the state of {', '.join(change.kept)}" if change.kept else "goes on where it is"
    return f"{what} and {kept}"


def drawn(spec: PipelineSpec) -> Mapping[str, Any]:
    """The picture of a pipeline, with its name and the topic of its dead letters."""
    return {**asdict(picture(spec.plan)), "name": spec.name, "dead_letters": spec.dead_letters}


def check(manager: Manager, text: str) -> dict[str, Any]:
    """mistakes: (line, message) of what keeps the pipeline from running, lines from 1, None for the whole file. remarks:
    what it may run with, but not for ever. picture: None if there are mistakes."""
    try:
        spec = manager.parsed(text, NAME)
    except PipelineError as error:
        message = str(error)
        place = PLACE.match(message)
        line = None if place is None else int(place[1])
        shown = message if place is None else message[place.end() :]
        return {"mistakes": [{"line": line, "message": shown}], "remarks": [], "picture": None}
    remarks = [f"{id}: {growth}" for id, growth in growing_state(spec.plan).items()]
    remarks += [
        _sentence(change, lambda query: manager.rebuild_cost(spec, query)) for change in manager.changes(spec)
    ]
    return {"mistakes": [], "remarks": remarks, "picture": drawn(spec)}
