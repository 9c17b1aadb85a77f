"""The monitor's own HTTP API: series of the history, their values, and alerts.

GET /v1/series[?name=NAME&LABEL=VALUE...]                         names, labels, units
GET /v1/history?name=NAME[&LABEL=VALUE...][&since=2d][&until=]    [seconds, mean, maximum] of each series
GET /v1/alerts                                                    what is wrong, the rules, what became of messages
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from barnabas.http.errors import HttpError
from barnabas.monitor.alerts.watch import Alerts
from barnabas.monitor.history.series import BY_NAME
from barnabas.monitor.history.store import HistoryError, Series
from barnabas.monitor.recording import Recorder

SERIES_MAX: Final = 100
"""Series in one answer."""
UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
DURATION: Final = re.compile(r"(\d{1,6})([smhdw])")
OTHERS: Final = frozenset({"name", "since", "until"})


def routes(recorder: Recorder | None, now_s: Callable[[], int]) -> list[BaseRoute]:
    """The requests. recorder: None where no history is kept."""

    def kept() -> Recorder:
        if recorder is None:
            raise HttpError(404, "no history is kept: the monitor was started with --size-mb 0")
        return recorder

    async def series(request: Request) -> Response:
        series_matching = _matching(
            await _read(kept().names()), _labels(request), request.query_params.get("name", "*")
        )
        return JSONResponse({"series": [_shown(one) for one in series_matching]})

    async def history(request: Request) -> Response:
        name = request.query_params.get("name")
        if name is None:
            raise HttpError(400, "name: a series is needed; GET /v1/series names them")
        now = now_s()
        since = time_of(request.query_params.get("since", "1d"), now)
        until = time_of(request.query_params.get("until", "0s"), now)
        series_matching = _matching(await _read(kept().names()), _labels(request), name)
        if len(series_matching) > SERIES_MAX:
            raise HttpError(
                400,
                f"{len(series_matching)} series match, at most {SERIES_MAX} are answered at once: give a label",
            )
        rows = await _read(kept().read(series_matching, since, until + 1))
        return JSONResponse(
            {
                "since": since,
                "until": until,
                "series": [
                    {**_shown(one), "points": [list(point) for point in points]}
                    for one, points in zip(series_matching, rows, strict=True)
                ],
            }
        )

    return [Route("/v1/series", series), Route("/v1/history", history)]


def alerts_route(alerts: Alerts | None) -> BaseRoute:
    """The request about alerts. alerts: None where there are no rules."""

    async def answer(_: Request) -> Response:
        if alerts is None:
            raise HttpError(404, "there are no alerts: the monitor was started without --rules")
        return JSONResponse(alerts.shown())

    return Route("/v1/alerts", answer)


async def _read(reading: Any) -> Any:
    try:
        return await reading
    except HistoryError as error:
        raise HttpError(503, str(error)) from None


def time_of(text: str, now_s: int) -> int:
    """A time in seconds since 1970: as it is, or `2d` before now (s, m, h, d, w). Raises HttpError."""
    match = DURATION.fullmatch(text)
    if match is not None:
        return now_s - int(match[1]) * UNITS_S[match[2]]
    if text.isdigit() and len(text) <= 12:
        return int(text)
    raise HttpError(400, f"{text!r} is neither a duration such as 30m, 2d or 1w nor seconds since 1970")


def _labels(request: Request) -> dict[str, str]:
    return {name: value for name, value in request.query_params.items() if name not in OTHERS}


def _matching(names: Iterable[Series], labels: dict[str, str], name: str) -> list[Series]:
    """Series whose name and labels match; * and ? stand for anything."""
    return [
        one
        for one in names
        if fnmatch.fnmatchcase(one.name, name)
        and all(fnmatch.fnmatchcase(dict(one.labels).get(key, ""), value) for key, value in labels.items())
    ]


def _shown(series: Series) -> dict[str, Any]:
    kept = BY_NAME.get(series.name)
    return {
        "name": series.name,
        "labels": dict(series.labels),
        "unit": "" if kept is None else kept.unit,
        "help": "" if kept is None else kept.help,
    }
