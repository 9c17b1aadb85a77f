"""Delegation tokens: whose they are, who may renew them, until when they are valid; renewed and ended."""

from __future__ import annotations

from typing import Any, Final

from barnabas.admin.families.tokens import BROKER_DEFAULT_MS, Token
from barnabas.client.errors import BrokerError, UnsupportedByBroker
from barnabas.console.asking import Ask, Done
from barnabas.console.said import Refused, Said, said
from barnabas.console.site import Data

HOUR_MS: Final = 3_600_000
HOURS_MAX: Final = 24 * 365


async def read_tokens(ask: Ask) -> Data:
    """Delegation tokens that the console's user may see, without their secrets"""
    problem: Said | None = None
    tokens: list[dict[str, Any]] = []
    try:
        tokens = [_row(token) for token in await ask.admin.tokens.list()]
    except (BrokerError, UnsupportedByBroker) as error:
        problem = said("Tokens cannot be listed: {reason}", reason=str(error))
    return {
        "tokens": sorted(tokens, key=lambda row: (row["owner"], row["id"])),
        "problem": problem,
        "tab": "tokens",
        "commands": [f"kafka-delegation-tokens --bootstrap-server {ask.cluster.where} --describe"],
    }


def _row(token: Token) -> dict[str, Any]:
    return {
        "id": token.id,
        "owner": str(token.owner),
        "requester": str(token.requester),
        "renewers": [str(who) for who in token.renewers],
        "issued_ms": token.issued_ms,
        "expires_ms": token.expires_ms,
        "expires_at_most_ms": token.expires_at_most_ms,
    }


async def _token(ask: Ask) -> Token:
    wanted = ask.required("id")
    chosen = next((token for token in await ask.admin.tokens.list() if token.id == wanted), None)
    if chosen is None:
        raise Refused(404, said("There is no token {name}", name=wanted[:100]))
    return chosen


async def renew_token(ask: Ask) -> Done:
    """Renew a token: id, hours (from now; without it, what the brokers' options say)"""
    token = await _token(ask)
    hours = ask.number("hours", 0, 0, HOURS_MAX)
    until = await ask.admin.tokens.renew(token.hmac, period_ms=hours * HOUR_MS or BROKER_DEFAULT_MS)
    return Done(
        said("The token {name} is renewed", name=token.id),
        "/access/tokens",
        {"id": token.id, "expires_ms": until},
    )


async def expire_token(ask: Ask) -> Done:
    """End a token at once: id"""
    token = await _token(ask)
    await ask.admin.tokens.expire(token.hmac)
    return Done(said("The token {name} is ended", name=token.id), "/access/tokens", {"id": token.id})
