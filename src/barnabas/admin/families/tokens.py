"""Delegation tokens: logins that expire, made on behalf of a user. Since Kafka 1.1."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from barnabas.admin.errors import ResourceError
from barnabas.admin.looping import Family, blocking
from barnabas.admin.values import TimestampMs
from barnabas.client.async_cluster import AsyncCluster
from barnabas.client.async_connection import AsyncConnection
from barnabas.client.errors import UnsupportedByBroker
from barnabas.wire.messages import create_delegation_token as wire_create
from barnabas.wire.messages import describe_delegation_token as wire_describe
from barnabas.wire.messages import expire_delegation_token as wire_expire
from barnabas.wire.messages import renew_delegation_token as wire_renew
from barnabas.wire.schema import Message

OWNER_VERSION: Final = 3
BROKER_DEFAULT_MS: Final = -1
"""As a period: what the broker's options say. As a period to expire: at once."""


class Principal(NamedTuple):
    """Who: `Principal("User", "alice")`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


@dataclass(frozen=True, slots=True)
class Token:
    """A token. id, hmac: its login's user and password (SCRAM). requester: who made it for the owner."""

    id: str
    hmac: bytes = field(repr=False)
    owner: Principal
    requester: Principal
    issued_ms: TimestampMs
    expires_ms: TimestampMs
    expires_at_most_ms: TimestampMs
    renewers: tuple[Principal, ...] = ()


class AsyncTokens:
    """`AsyncAdmin.tokens`. Brokers take these requests over authenticated connections only."""

    def __init__(self, cluster: AsyncCluster) -> None:
        self._cluster = cluster

    async def create(
        self,
        *,
        owner: Principal | None = None,
        renewers: Iterable[Principal] = (),
        max_lifetime_ms: int = BROKER_DEFAULT_MS,
    ) -> Token:
        """A new token of the caller, or (since Kafka 3.3) of `owner`. Raises ResourceError."""
        named = tuple(renewers)

        async def ask() -> Token:
            connection = await self._cluster.node(await self._cluster.controller())
            request = wire_create.CreateDelegationTokenRequest(
                renewers=[
                    wire_create.CreatableRenewers(principal_type=who.type, principal_name=who.name)
                    for who in named
                ],
                max_lifetime_ms=max_lifetime_ms,
                **_owner_fields(connection, owner),
            )
            answer = await connection.call(request, wire_create.CreateDelegationTokenResponse)
            if answer.error_code:
                raise ResourceError(answer.error_code, "create", "a delegation token")
            return _token(
                answer,
                answer.issue_timestamp_ms,
                answer.expiry_timestamp_ms,
                answer.max_timestamp_ms,
                named,
            )

        return await self._cluster.retry(ask)

    async def list(self, owners: Iterable[Principal] | None = None) -> Sequence[Token]:
        """The tokens of these owners (None: all) that the caller may see. Raises ResourceError."""
        wanted = (
            None
            if owners is None
            else [
                wire_describe.DescribeDelegationTokenOwner(principal_type=who.type, principal_name=who.name)
                for who in owners
            ]
        )

        async def ask() -> Sequence[Token]:
            connection = await self._cluster.any()
            request = wire_describe.DescribeDelegationTokenRequest(owners=wanted)
            answer = await connection.call(request, wire_describe.DescribeDelegationTokenResponse)
            if answer.error_code:
                raise ResourceError(answer.error_code, "list", "delegation tokens")
            return [
                _token(
                    row,
                    row.issue_timestamp,
                    row.expiry_timestamp,
                    row.max_timestamp,
                    tuple(Principal(who.principal_type, who.principal_name) for who in row.renewers),
                )
                for row in answer.tokens
            ]

        return await self._cluster.retry(ask)

    async def renew(self, hmac: bytes, *, period_ms: int = BROKER_DEFAULT_MS) -> TimestampMs:
        """When the token expires now. Raises ResourceError."""
        request = wire_renew.RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
        return await self._change(request, wire_renew.RenewDelegationTokenResponse, "renew")

    async def expire(self, hmac: bytes, *, period_ms: int = BROKER_DEFAULT_MS) -> TimestampMs:
        """Shorten a token's life to this period from now, or end it at once; when it expires. Raises ResourceError."""
        request = wire_expire.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
        return await self._change(request, wire_expire.ExpireDelegationTokenResponse, "expire")

    async def _change(self, request: Message, response: type[Message], action: str) -> TimestampMs:
        async def ask() -> TimestampMs:
            connection = await self._cluster.node(await self._cluster.controller())
            answer = await connection.call(request, response)
            if answer.error_code:
                raise ResourceError(answer.error_code, action, "the delegation token")
            return TimestampMs(answer.expiry_timestamp_ms)

        return await self._cluster.retry(ask)


class Tokens(Family[AsyncTokens]):
    """`Admin.tokens`."""

    create = blocking(AsyncTokens.create)
    list = blocking(AsyncTokens.list)
    renew = blocking(AsyncTokens.renew)
    expire = blocking(AsyncTokens.expire)


def _owner_fields(connection: AsyncConnection, owner: Principal | None) -> dict[str, str | None]:
    """Raises UnsupportedByBroker for an owner where tokens are the caller's only."""
    if connection.version_for(wire_create.CreateDelegationTokenRequest) >= OWNER_VERSION:
        return {
            "owner_principal_type": None if owner is None else owner.type,
            "owner_principal_name": None if owner is None else owner.name,
        }
    if owner is not None:
        raise UnsupportedByBroker(
            f"{connection.address} makes tokens for the caller only (before Kafka 3.3)",
            "CreateDelegationToken",
        )
    return {}


def _token(
    row: Any, issued_ms: int, expires_ms: int, expires_at_most_ms: int, renewers: tuple[Principal, ...]
) -> Token:
    owner = Principal(row.principal_type, row.principal_name)
    requester = Principal(row.token_requester_principal_type, row.token_requester_principal_name)
    return Token(
        row.token_id,
        bytes(row.hmac),
        owner,
        requester if requester.name else owner,
        TimestampMs(issued_ms),
        TimestampMs(expires_ms),
        TimestampMs(expires_at_most_ms),
        renewers,
    )
