"""kafka-delegation-tokens: short-lived credentials that one user hands to others."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from barnabas.admin import Admin, Principal, ResourceError, Token
from barnabas.kafka_tools.shared.common import ToolError, checked, connect, java_error, parse
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Parsed, Refused, Tool
from barnabas.terminal.errors import EXIT_OK

ACTIONS: Final = ("create", "renew", "expire", "describe")
NEEDS: Final = {
    "create": ("max-life-time-period",),
    "renew": ("hmac", "renew-time-period"),
    "expire": ("hmac", "expiry-time-period"),
    "describe": (),
}
ROW: Final = "{:<15} {:<30} {:<15} {:<15} {:<25} {:<15} {:<15} {:<15}"
TOOL: Final = Tool(
    "This tool helps to create, renew, expire, or describe delegation tokens.",
    (
        *COMMON,
        Opt("create", "Create a token."),
        Opt("renew", "Renew a token."),
        Opt("expire", "Expire a token."),
        Opt("describe", "Print the tokens that one may see."),
        Opt("owner-principal", "Owner: User:name.", "String", optional=True),
        Opt("renewer-principal", "Who may renew the token: User:name.", "String", optional=True),
        Opt(
            "max-life-time-period",
            "How long the token may live in ms; -1: the broker's.",
            "Long",
            optional=True,
        ),
        Opt("renew-time-period", "For how long in ms; -1: the broker's.", "Long", optional=True),
        Opt("expiry-time-period", "When in ms; -1: at once.", "Long", optional=True),
        Opt("hmac", "The token's HMAC, in base64.", "String", optional=True),
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Run one action; the exit code."""
    parsed = parse(TOOL, arguments)
    checked(TOOL, check, parsed)
    action = next(action for action in ACTIONS if action in parsed)
    run = {"create": create, "renew": renew, "expire": expire, "describe": describe}[action]
    try:
        run(connect(parsed), parsed)
    except ResourceError as error:
        raise ToolError(java_error(error.code, TEXTS.get(error.code))) from None
    return EXIT_OK


def check(parsed: Parsed) -> None:
    """Raises Refused."""
    actions = [action for action in ACTIONS if action in parsed]
    if len(actions) != 1:
        raise Refused("Command must include exactly one action: --create, --renew, --expire or --describe")
    TOOL.need(parsed, "command-config", *NEEDS[actions[0]])


def principals(parsed: Parsed, option: str) -> list[Principal]:
    """User:name options. Raises Refused."""
    names = []
    for text in parsed.all(option):
        kind, colon, name = text.strip().partition(":")
        if not colon:
            raise Refused(f"expected a string in format principalType:principalName but got {text}", False)
        names.append(Principal(kind, name))
    return names


def java_list(who: Sequence[Principal]) -> str:
    """Principals as Java prints a list of them."""
    return f"[{', '.join(map(str, who))}]"


def create(admin: Admin, parsed: Parsed) -> None:
    """Make a token. Raises ResourceError."""
    renewers, life_ms = principals(parsed, "renewer-principal"), parsed.number("max-life-time-period", -1)
    owners = principals(parsed, "owner-principal")
    print(
        f"Calling create token operation with renewers :{java_list(renewers)} , max-life-time-period :{life_ms}"
    )
    owner = owners[0] if owners else None
    token = admin.tokens.create(owner=owner, renewers=renewers, max_lifetime_ms=life_ms)
    print(f"Created delegation token with tokenId : {token.id}")
    print_tokens([token])


def describe(admin: Admin, parsed: Parsed) -> None:
    """Print tokens. Raises ResourceError."""
    owners = principals(parsed, "owner-principal")
    who = f"owners: {java_list(owners)}" if owners else "current user."
    print(f"Calling describe token operation for {who}")
    tokens = admin.tokens.list(owners or None)
    print(f"Total number of tokens : {len(tokens)}")
    print_tokens(tokens)


def print_tokens(tokens: Sequence[Token]) -> None:
    """A table of tokens with their renewers and times."""
    print()
    heads = ("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE")
    print(ROW.format(*heads))
    for token in tokens:
        times = (token.issued_ms, token.expires_ms, token.expires_at_most_ms)
        print(
            ROW.format(
                token.id,
                base64.b64encode(token.hmac).decode(),
                str(token.owner),
                str(token.requester),
                java_list(token.renewers),
                *(date_text(stamp) for stamp in times),
            )
        )


def date_text(stamp_ms: int) -> str:
    """A time in ms, to the minute, local."""
    return datetime.fromtimestamp(stamp_ms / 1000, UTC).astimezone().strftime("%Y-%m-%dT%H:%M")


def hmac_of(parsed: Parsed) -> bytes:
    """--hmac as bytes. Raises Refused."""
    text = parsed.text("hmac")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        raise Refused(f"--hmac {text!r} is not base64", False) from None


def renew(admin: Admin, parsed: Parsed) -> None:
    """Extend the life of a token. Raises ResourceError."""
    hmac, period_ms = hmac_of(parsed), parsed.number("renew-time-period", -1)
    print(f"Calling renew token operation with hmac :{parsed.text('hmac')} , renew-time-period :{period_ms}")
    expires_ms = admin.tokens.renew(hmac, period_ms=period_ms)
    print(f"Completed renew operation. New expiry date : {date_text(expires_ms)}")


def expire(admin: Admin, parsed: Parsed) -> None:
    """End a token. Raises ResourceError."""
    hmac, period_ms = hmac_of(parsed), parsed.number("expiry-time-period", -1)
    print(
        f"Calling expire token operation with hmac :{parsed.text('hmac')} , expire-time-period :{period_ms}"
    )
    expires_ms = admin.tokens.expire(hmac, period_ms=period_ms)
    print(f"Completed expire operation. New expiry date : {date_text(expires_ms)}")


TEXTS: Final = {
    64: "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on delegation token "
    "authenticated channels.",
    61: "Delegation Token feature is not enabled.",
}
