"""Delegation tokens (KIP-48, KIP-373): what they are, where they are stored in the znode tree, what principals may do with
them.

A login with a token uses SCRAM: the token's id is the user name, its HMAC in base64 is the password. The HMAC is computed
from the id and the brokers' common secret, and is not stored anywhere. A client that logs in with a token acts as its owner.
Source: Kafka's DelegationTokenManagerZk.scala, ZkData.scala.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote, unquote

from barnabas.cores.znode_ops import Create, Delete, Op, Set
from barnabas.wire.errors import ApiError, ErrorCode

ROOT: Final = "/delegation_token"
NODES: Final = f"{ROOT}/tokens"
PARENTS: Final = (ROOT, NODES)
FORMAT_VERSION: Final = 3
SEPARATOR: Final = ":"


@dataclass(frozen=True, slots=True)
class Token:
    """One token. Principals are texts like User:alice; times are wall-clock times in ms."""

    id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    max_ms: int
    expiry_ms: int

    def has_expired(self, now_ms: int) -> bool:
        """Whether the token is past its expiry time or its maximum lifetime."""
        return self.max_ms < now_ms or self.expiry_ms < now_ms

    def belongs_to(self, principal: str) -> bool:
        """Whether a principal is the token's owner or may renew it."""
        return principal == self.owner or principal in self.renewers


def token_path(token_id: str) -> str:
    """The node of a token."""
    return f"{NODES}/{token_id}"


def token_id_of(path: str) -> str | None:
    """The id of the token stored in a node; None for other nodes."""
    head, _, token_id = path.rpartition("/")
    return token_id if head == NODES and token_id else None


def encode_token(token: Token) -> bytes:
    """Payload of a token's node."""
    row = {
        "version": FORMAT_VERSION,
        "owner": _quoted(token.owner),
        "tokenRequester": _quoted(token.requester),
        "renewers": [_quoted(renewer) for renewer in token.renewers],
        "issueTimestamp": token.issued_ms,
        "maxTimestamp": token.max_ms,
        "expiryTimestamp": token.expiry_ms,
        "tokenId": token.id,
    }
    return json.dumps(row, separators=(",", ":")).encode()


def decode_token(path: str, data: bytes) -> Token:
    """The token in a payload. Raises ValueError."""
    try:
        row = json.loads(data)
        owner = unquote(row["owner"])
        return Token(
            id=str(row["tokenId"]),
            owner=owner,
            requester=unquote(row.get("tokenRequester", row["owner"])),
            renewers=tuple(unquote(renewer) for renewer in row["renewers"]),
            issued_ms=int(row["issueTimestamp"]),
            max_ms=int(row["maxTimestamp"]),
            expiry_ms=int(row["expiryTimestamp"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: no delegation token: {error!r}") from None


def _quoted(principal: str) -> str:
    return quote(principal, safe="-_.")


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """delegation.token.expiry.time.ms and delegation.token.max.lifetime.ms."""

    expiry_ms: int
    max_ms: int


def new_token(
    token_id: str,
    owner: str,
    requester: str,
    renewers: tuple[str, ...],
    wanted_ms: int,
    now_ms: int,
    lifetimes: Lifetimes,
) -> Token:
    """A new token. wanted_ms: its requested maximum lifetime; 0 or less for the longest that the brokers allow."""
    life_ms = lifetimes.max_ms if wanted_ms <= 0 else min(wanted_ms, lifetimes.max_ms)
    max_ms = now_ms + life_ms
    return Token(
        token_id, owner, requester, renewers, now_ms, max_ms, min(max_ms, now_ms + lifetimes.expiry_ms)
    )


def _require(token: Token | None, principal: str) -> Token:
    if token is None:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "no token has this HMAC")
    if not token.belongs_to(principal):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, f"{principal} is neither owner nor renewer")
    return token


def _alive(token: Token, now_ms: int) -> Token:
    if token.has_expired(now_ms):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED, f"token {token.id} has expired")
    return token


def renewed(token: Token | None, principal: str, period_ms: int, now_ms: int, lifetimes: Lifetimes) -> Token:
    """The token with a later expiry time. period_ms: negative for the brokers' default. Raises ApiError."""
    alive = _alive(_require(token, principal), now_ms)
    period_ms = lifetimes.expiry_ms if period_ms < 0 else period_ms
    return replace(alive, expiry_ms=min(alive.max_ms, now_ms + period_ms))


def expired(token: Token | None, principal: str, period_ms: int, now_ms: int) -> Token | None:
    """The token with a new expiry time; None if it ends at once (period_ms below 0). Raises ApiError."""
    known = _require(token, principal)
    if period_ms < 0:
        return None
    return replace(_alive(known, now_ms), expiry_ms=min(known.max_ms, now_ms + period_ms))


def visible(
    tokens: Iterable[Token], principal: str, owners: Iterable[str] | None, may_see: Callable[[Token], bool]
) -> list[Token]:
    """The tokens that a principal may see. owners: only tokens of these owners; None for all."""
    wanted = None if owners is None else tuple(owners)
    return [
        token
        for token in tokens
        if (wanted is None or any(token.belongs_to(owner) for owner in wanted))
        and (token.belongs_to(principal) or may_see(token))
    ]


def decide_token(token_id: str, version: int | None, token: Token | None) -> Iterable[Op]:
    """The change of the tree that stores or removes a token. version: of its node; None if there is no node."""
    path = token_path(token_id)
    if version is None:
        return () if token is None else (Create(path, encode_token(token)),)
    return (Delete(path, version),) if token is None else (Set(path, encode_token(token), version),)
