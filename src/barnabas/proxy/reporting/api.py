"""The requests of reporting: SendMessage, the actions that manage access points, and plain POSTs to topics.

The answer to a refused action is {"Response": {"Error": {"Code", "Message"}, "RequestId"}} with status 200, as in
Tencent Cloud's guide. The answer to a refused POST is {"error_code", "message"} with the status of the error.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Scope

from barnabas.http import openapi
from barnabas.http.bodies import LARGE_BYTES, read_body
from barnabas.http.errors import HttpError
from barnabas.proxy.call import answer, parse
from barnabas.proxy.errors import from_kafka
from barnabas.proxy.producing import Outgoing, Producing
from barnabas.proxy.reporting.bodies import BadBody, Message, messages_in
from barnabas.proxy.reporting.points import Point, Points
from barnabas.proxy.reporting.signatures import BadSignature, check_hook, check_tc3

MESSAGES_MAX: Final = 500
NAME_MAX: Final = 128


class ActionFailed(Exception):
    """An action is refused. code: as in Tencent Cloud's guide."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(message)


@dataclass(slots=True)
class Reporting:
    """secrets: keys by secret id; if there are any, every action has to be signed. hooks: kind and secret by topic."""

    points: Points
    producing: Producing
    secrets: Mapping[str, str] = field(default_factory=dict)
    hooks: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    now_s: Callable[[], float] = time.time

    def is_hook(self, scope: Scope) -> bool:
        """Whether a request is for a topic of signed web hooks; GitHub sends forms, if it is told to."""
        path: str = scope["path"]
        return path.startswith("/topics/") and unquote(path.removeprefix("/topics/")) in self.hooks

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return int(self.now_s() * 1000)


Action = Callable[[Reporting, dict[str, Any]], Awaitable[dict[str, Any]]]


# --- actions ------------------------------------------------------------------------------------------


def _text(body: dict[str, Any], name: str, default: str | None = None) -> str:
    value = body.get(name, default)
    if not isinstance(value, str) or (not value and default is None):
        raise ActionFailed("InvalidParameterValue", f"{name} must be a non-empty text")
    return value


def _point(reporting: Reporting, body: dict[str, Any]) -> Point:
    point_id = _text(body, "DataHubId")
    point = reporting.points.find(point_id)
    if point is None:
        raise ActionFailed("ResourceNotFound", f"task not found [{point_id[:100]}]")
    return point


def _shown(point: Point) -> dict[str, Any]:
    return {
        "DataHubId": point.id,
        "Name": point.name,
        "Topic": point.topic,
        "Status": "Paused" if point.paused else "Running",
        "CreateTime": point.created_ms,
    }


async def send_message(reporting: Reporting, body: dict[str, Any]) -> dict[str, Any]:
    """SendMessage: up to 500 messages to the topic of an access point."""
    received_ms = reporting.now_ms()
    point = _point(reporting, body)
    if point.paused:
        raise ActionFailed("FailedOperation", f"task status suspended [{point.id}]")
    rows = body.get("Message")
    if not isinstance(rows, list) or not 0 < len(rows) <= MESSAGES_MAX:
        raise ActionFailed("InvalidParameterValue", f"Message must be a list of 1 to {MESSAGES_MAX} messages")
    records = []
    for index, row in enumerate(rows):
        if not isinstance(row, dict) or not isinstance(row.get("Body"), str):
            raise ActionFailed("InvalidParameterValue", f"Message[{index}].Body must be a text")
        key = row.get("Key")
        if key is not None and not isinstance(key, str):
            raise ActionFailed("InvalidParameterValue", f"Message[{index}].Key must be a text")
        records.append(
            Outgoing(
                key.encode("utf-8", "surrogatepass") if key else None,
                row["Body"].encode("utf-8", "surrogatepass"),
            )
        )
    await reporting.producing.partitions(point.topic)
    results = await reporting.producing.send(point.topic, records)
    stored_ms = reporting.now_ms()
    for index, result in enumerate(results):
        if result.error is not None:
            raise ActionFailed(
                "InternalError",
                f"Message[{index}] was not stored: {result.error.str()}; others may have been",
            )
    ids = [
        f"{point.id}:{point.topic}:{result.partition}:{result.offset}:{received_ms}:{stored_ms}"
        for result in results
    ]
    return {"MessageId": ids}


async def create_point(reporting: Reporting, body: dict[str, Any]) -> dict[str, Any]:
    """CreateAccessPoint: a name that leads to a topic."""
    name = _text(body, "Name", "")
    if len(name) > NAME_MAX:
        raise ActionFailed("InvalidParameterValue", f"Name has more than {NAME_MAX} characters")
    return _shown(await reporting.points.create(name, _text(body, "Topic"), reporting.now_ms()))


async def list_points(reporting: Reporting, body: dict[str, Any]) -> dict[str, Any]:
    """DescribeAccessPoints: all of them."""
    rows = [_shown(point) for point in reporting.points.all()]
    return {"TotalCount": len(rows), "AccessPoints": rows}


async def pause_point(reporting: Reporting, body: dict[str, Any]) -> dict[str, Any]:
    """PauseAccessPoint: messages to it are refused until it is resumed."""
    return _shown(await reporting.points.pause(_point(reporting, body), True))


async def resume_point(reporting: Reporting, body: dict[str, Any]) -> dict[str, Any]:
    """ResumeAccessPoint: messages to it are accepted again."""
    return _shown(await reporting.points.pause(_point(reporting, body), False))


async def delete_point(reporting: Reporting, body: dict[str, Any]) -> dict[str, Any]:
    """DeleteAccessPoint: deletes it, but not its topic."""
    point = _point(reporting, body)
    await reporting.points.delete(point)
    return {"DataHubId": point.id}


ACTIONS: Final[Mapping[str, Action]] = {
    "SendMessage": send_message,
    "CreateAccessPoint": create_point,
    "DescribeAccessPoints": list_points,
    "PauseAccessPoint": pause_point,
    "ResumeAccessPoint": resume_point,
    "DeleteAccessPoint": delete_point,
}


async def act(reporting: Reporting, request: Request) -> Response:
    """POST /: the action that X-TC-Action (or Action in the query) names."""
    raw = await read_body(request)
    headers = dict(reversed(request.headers.items()))  # of a name that is repeated, the first one
    try:
        if reporting.secrets:
            check_tc3(
                reporting.secrets,
                request.method,
                request.url.path,
                request.url.query,
                headers,
                raw,
                reporting.now_s(),
            )
        name = headers.get("x-tc-action") or request.query_params.get("Action") or ""
        action = ACTIONS.get(name)
        if action is None:
            raise ActionFailed(
                "InvalidAction", f"X-TC-Action {name[:40]!r} is not one of {', '.join(ACTIONS)}"
            )
        body = await parse(raw or b"{}")
        if not isinstance(body, dict):
            raise ActionFailed("InvalidParameter", "the body is not a JSON object")
        response = await action(reporting, body)
    except (ActionFailed, BadSignature) as error:
        response = {"Error": {"Code": error.code, "Message": error.message}}
    except HttpError as error:
        code = "InternalError" if error.status >= 500 else "InvalidParameter"
        response = {"Error": {"Code": code, "Message": error.message}}
    return answer({"Response": {**response, "RequestId": request.state.request_id}})


# --- a plain POST -------------------------------------------------------------------------------------


async def post(reporting: Reporting, request: Request) -> Response:
    """POST /topics/{topic}: stores JSON lines, a web hook's body or CloudEvents."""
    raw = await read_body(request)
    topic = unquote(request.path_params["topic"])
    headers = dict(reversed(request.headers.items()))
    hook = reporting.hooks.get(topic)
    if hook is not None:
        try:
            check_hook(*hook, headers, raw, reporting.now_s())
        except BadSignature as error:
            raise HttpError(401, error.message) from error
    elif reporting.hooks or reporting.secrets:
        raise HttpError(
            403, f"topic {topic[:100]!r} accepts no unsigned POSTs; add it to the file of web hooks"
        )
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if hook is not None:  # the sender is verified: the body is stored as it was signed
            messages = [Message(None, raw)]
        else:
            parts = (media_type, headers, raw, request.query_params.get("key"))
            is_large = len(raw) >= LARGE_BYTES
            messages = await asyncio.to_thread(messages_in, *parts) if is_large else messages_in(*parts)
    except BadBody as error:
        raise HttpError(400, str(error)) from error
    await reporting.producing.partitions(topic)
    records = [Outgoing(message.key, message.value, headers=message.headers) for message in messages]
    results = await reporting.producing.send(topic, records)
    for index, result in enumerate(results):
        if result.error is not None:
            refused = from_kafka(result.error)
            message = f"record {index} was not stored: {refused.message}; others may have been"
            raise HttpError(refused.status, message, refused.code)
    return answer({"offsets": [{"partition": r.partition, "offset": r.offset} for r in results]})


TABLE: Final[tuple[tuple[str, str, Callable[[Reporting, Request], Awaitable[Response]]], ...]] = (
    ("POST", "/", act),
    ("POST", "/topics/{topic}", post),
)


def routes(reporting: Reporting) -> list[BaseRoute]:
    """The paths of the service."""
    reporting_routes = [
        Route(path, _endpoint(reporting, work), methods=[method]) for method, path, work in TABLE
    ]
    return [*openapi.routes("Reporting", TABLE), *reporting_routes]


def _endpoint(
    reporting: Reporting, work: Callable[[Reporting, Request], Awaitable[Response]]
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return await work(reporting, request)

    return endpoint
