"""Asks the services beside a cluster over HTTP: those of pipelines, connectors, SQL and monitoring."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from barnabas.console.apart import apart
from barnabas.console.asking import Ask
from barnabas.console.said import Refused, Said, said
from barnabas.http_client import Address, Answer, NoAnswer, without_login
from barnabas.http_client import ask as ask_service

TIMEOUT_S: Final = 20.0
MORE_S: Final = 1.0
"""How much later than the request the wait for it ends."""
ANSWER_BYTES_MAX: Final = 16 << 20
NOTHING: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class ServiceKind:
    """A service that a cluster may have. name: of the option that says where it is, and of the service in `start --with`.

    who: in an English sentence, for what the service itself does not explain. missing, advice: what a page says where none
    is known. away: with the gaps url and reason. fields: of an error's JSON object, where its reason is found.
    """

    name: str
    who: str
    missing: Said
    advice: Said
    away: str
    odd: str
    fields: tuple[str, ...] = ("message", "error")


PIPELINES: Final = ServiceKind(
    "pipelines",
    "the server of pipelines",
    said("No server of pipelines is known for this cluster"),
    said("Start one with barnabas pipelines serve, and the console with --pipelines URL."),
    said("The server of pipelines does not answer at {url}: {reason}").text,
    said("{url} does not answer as a server of pipelines does").text,
)
CONNECT: Final = ServiceKind(
    "connect",
    "the Connect worker",
    said("No Connect worker is known for this cluster"),
    said("Start one with barnabas connect start, and the console with --connect URL."),
    said("The Connect worker does not answer at {url}: {reason}").text,
    said("{url} does not answer as a Connect worker does").text,
)
SQL: Final = ServiceKind(
    "sql",
    "the SQL server",
    said("No SQL server is known for this cluster"),
    said("Start one with barnabas sql start, and the console with --sql URL."),
    said("The SQL server does not answer at {url}: {reason}").text,
    said("{url} does not answer as a SQL server does").text,
)
MONITOR: Final = ServiceKind(
    "monitor",
    "the monitor",
    said("No monitor is known for this cluster"),
    said("Start one with barnabas monitor, and the console with --monitor URL."),
    said("The monitor does not answer at {url}: {reason}").text,
    said("{url} does not answer as a monitor does").text,
)
RUNS: Final = said("Look whether it runs; this page tries again by itself.")


def service_url(ask: Ask, kind: ServiceKind) -> str:
    """Where the service is, without a login. Raises Refused."""
    return without_login(address_of(ask, kind).url)


def address_of(ask: Ask, kind: ServiceKind) -> Address:
    """Where the service is. Raises Refused."""
    address = ask.cluster.service(kind.name)
    if address is None:
        raise Refused(404, kind.missing, kind.advice)
    return address


async def exchange(
    ask: Ask,
    kind: ServiceKind,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] = NOTHING,
    timeout_s: float = TIMEOUT_S,
) -> Answer:
    """The answer, whatever its status. Raises Refused if there is none."""
    address = address_of(ask, kind)
    try:
        return await apart(
            address.url,
            lambda: ask_service(
                address, method, path, body, headers, timeout_s=timeout_s, bytes_max=ANSWER_BYTES_MAX
            ),
            timeout_s + MORE_S,
        )
    except (NoAnswer, TimeoutError) as error:
        reason = str(error) or f"nothing has come within {timeout_s:g} seconds"
        url = without_login(address.url)
        raise Refused(503, Said(kind.away, {"url": url, "reason": reason}), RUNS) from None


async def call(
    ask: Ask,
    kind: ServiceKind,
    method: str,
    path: str,
    body: Any = None,
    *,
    raw: bytes | None = None,
    media_type: str = "application/json",
    text: bool = False,
    timeout_s: float = TIMEOUT_S,
) -> Any:
    """The answer to a request: JSON, or text. raw: a body that is sent as it is. Raises Refused."""
    data = json.dumps(body).encode() if body is not None else raw
    headers = NOTHING if data is None else {"Content-Type": media_type}
    answer = await exchange(ask, kind, method, path, data, headers, timeout_s)
    if answer.status >= 400:
        status = answer.status if answer.status < 500 or answer.status == 503 else 502
        raise Refused(status, said("{reason}", reason=reason_of(kind, answer)))
    if text:
        return answer.body.decode("utf-8", "replace")
    try:
        return json.loads(answer.body) if answer.body else None
    except ValueError:
        raise Refused(502, Said(kind.odd, {"url": service_url(ask, kind)})) from None


def reason_of(kind: ServiceKind, answer: Answer) -> str:
    """Why the service refuses, in its own words if it says so."""
    try:
        fields = json.loads(answer.body)
    except ValueError:
        fields = None
    reason = None
    if isinstance(fields, dict):
        reason = next((fields[field] for field in kind.fields if fields.get(field)), None)
    return str(reason or f"{kind.who} answers with status {answer.status}")
