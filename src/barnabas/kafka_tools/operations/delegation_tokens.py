"""kafka-delegation-tokens: short-lived credentials that one user hands to others."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from barnabas.kafka_tools.common import Admin, ToolError, checked, java_error, parse
from barnabas.kafka_tools.parser import COMMON, Opt, Parsed, Refused, Tool
from barnabas.terminal.errors import EXIT_OK
from barnabas.wire.messages import create_delegation_token as create_messages
from barnabas.wire.messages import describe_delegation_token as describe_messages
from barnabas.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from barnabas.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

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
    {"create": create, "renew": renew, "expire": expire, "describe": describe}[action](
        Admin.connect(parsed), parsed
    )
    return EXIT_OK


def check(parsed: Parsed) -> None:
    """Raises Refused."""
    given = [action for action in ACTIONS if action in parsed]
    if len(given) != 1:
        raise Refused("Command must include exactly one action: --create, --renew, --expire or --describe")
    TOOL.need(parsed, "command-config", *NEEDS[given[0]])


def principals(parsed: Parsed, option: str) -> list[tuple[str, str]]:
    """User:name options as pairs. Raises Refused."""
    found = []
    for text in parsed.all(option):
        kind, colon, name = text.strip().partition(":")
        if not colon:
            raise Refused(f"expected a string in format principalType:principalName but got {text}", False)
        found.append((kind, name))
    return found


def java_list(pairs: Sequence[tuple[str, str]]) -> str:
    """Principals as Java prints a list of them."""
    return f"[{', '.join(f'{kind}:{name}' for kind, name in pairs)}]"


def create(admin: Admin, parsed: Parsed) -> None:
    """Make a token. Raises ToolError."""
    renewers, life_ms = principals(parsed, "renewer-principal"), parsed.number("max-life-time-period", -1)
    owners = principals(parsed, "owner-principal")
    print(
        f"Calling create token operation with renewers :{java_list(renewers)} , max-life-time-period :{life_ms}"
    )
    request = create_messages.CreateDelegationTokenRequest(
        owner_principal_type=owners[0][0] if owners else None,
        owner_principal_name=owners[0][1] if owners else None,
        renewers=[
            create_messages.CreatableRenewers(principal_type=kind, principal_name=name)
            for kind, name in renewers
        ],
        max_lifetime_ms=life_ms,
    )
    token = admin.any(request, create_messages.CreateDelegationTokenResponse)
    raise_error(token)
    print(f"Created delegation token with tokenId : {token.token_id}")
    times = (token.issue_timestamp_ms, token.expiry_timestamp_ms, token.max_timestamp_ms)
    print_tokens([(token, renewers, times)])


def describe(admin: Admin, parsed: Parsed) -> None:
    """Print tokens. Raises ToolError."""
    owners = principals(parsed, "owner-principal")
    who = f"owners: {java_list(owners)}" if owners else "current user."
    print(f"Calling describe token operation for {who}")
    rows = [
        describe_messages.DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
        for kind, name in owners
    ]
    answer = admin.any(
        describe_messages.DescribeDelegationTokenRequest(owners=rows or None),
        describe_messages.DescribeDelegationTokenResponse,
    )
    raise_error(answer)
    print(f"Total number of tokens : {len(answer.tokens)}")
    print_tokens(
        [
            (
                token,
                [(renewer.principal_type, renewer.principal_name) for renewer in token.renewers],
                (token.issue_timestamp, token.expiry_timestamp, token.max_timestamp),
            )
            for token in answer.tokens
        ]
    )


def print_tokens(tokens: Sequence[tuple[Any, list[tuple[str, str]], tuple[int, ...]]]) -> None:
    """A table of tokens with their renewers and times."""
    print()
    heads = ("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE")
    print(ROW.format(*heads))
    for token, renewers, times in tokens:
        print(
            ROW.format(
                token.token_id,
                base64.b64encode(token.hmac).decode(),
                f"{token.principal_type}:{token.principal_name}",
                f"{token.token_requester_principal_type}:{token.token_requester_principal_name}",
                java_list(renewers),
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
    """Extend the life of a token. Raises ToolError."""
    hmac, period_ms = hmac_of(parsed), parsed.number("renew-time-period", -1)
    print(f"Calling renew token operation with hmac :{parsed.text('hmac')} , renew-time-period :{period_ms}")
    request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
    answer = admin.any(request, RenewDelegationTokenResponse)
    raise_error(answer)
    print(f"Completed renew operation. New expiry date : {date_text(answer.expiry_timestamp_ms)}")


def expire(admin: Admin, parsed: Parsed) -> None:
    """End a token. Raises ToolError."""
    hmac, period_ms = hmac_of(parsed), parsed.number("expiry-time-period", -1)
    print(
        f"Calling expire token operation with hmac :{parsed.text('hmac')} , expire-time-period :{period_ms}"
    )
    request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    answer = admin.any(request, ExpireDelegationTokenResponse)
    raise_error(answer)
    print(f"Completed expire operation. New expiry date : {date_text(answer.expiry_timestamp_ms)}")


TEXTS: Final = {
    64: "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on delegation token "
    "authenticated channels.",
    61: "Delegation Token feature is not enabled.",
}


def raise_error(answer: Any) -> None:
    """Raises ToolError for an answer with an error."""
    if answer.error_code:
        raise ToolError(java_error(answer.error_code, TEXTS.get(answer.error_code)))
