"""CreateDelegationToken (key 38), versions 0 to 3: issue a token to the requester or, since 3, to another user (KIP-373)."""

from __future__ import annotations

from typing import Final

from barnabas.broker.api.context import Context
from barnabas.cores.acl import Operation, ResourceType
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

USER: Final = "User"
ANONYMOUS: Final = "User:ANONYMOUS"


async def handle(context: Context, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse:
    """The new token with its HMAC, which is its password; times are wall time in ms.
    DELEGATION_TOKEN_AUTHORIZATION_FAILED if the requester may not act for the owner.
    """
    requester = context.principal
    owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
    if not request.owner_principal_name:
        owner = requester
    tokens = context.services.tokens
    try:
        require_known_peer(context)
        if owner != requester and not context.allows(Operation.CREATE_TOKENS, ResourceType.USER, owner):
            raise ApiError(
                ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, f"{requester} acts not for {owner}"
            )
        types = {renewer.principal_type for renewer in request.renewers} | {owner.partition(":")[0]}
        if types != {USER}:
            raise ApiError(ErrorCode.INVALID_PRINCIPAL_TYPE, "tokens are for principals of type User")
        renewers = tuple(f"{USER}:{renewer.principal_name}" for renewer in request.renewers)
        token = await tokens.create(owner, requester, renewers, request.max_lifetime_ms)
    except ApiError as error:
        return _answer(error.code, owner, requester)
    answer = _answer(ErrorCode.NONE, owner, requester)
    answer.token_id, answer.hmac = token.id, tokens.hmac_of(token.id)
    answer.issue_timestamp_ms, answer.max_timestamp_ms = token.issued_ms, token.max_ms
    answer.expiry_timestamp_ms = token.expiry_ms
    return answer


def _answer(code: ErrorCode, owner: str, requester: str) -> CreateDelegationTokenResponse:
    (owner_type, _, owner_name), (kind, _, name) = owner.partition(":"), requester.partition(":")
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=kind,
        token_requester_principal_name=name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )


def require_known_peer(context: Context) -> None:
    """Raises ApiError for peers that must not see tokens: those without a login, and those that logged in with a token."""
    connection = context.connection
    by_token = connection.sasl is not None and connection.sasl.by_token
    if by_token or context.principal == ANONYMOUS:
        raise ApiError(
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "tokens are for connections with a login or a certificate, and not for those that used a token",
        )
