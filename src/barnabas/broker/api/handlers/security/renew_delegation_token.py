"""RenewDelegationToken (key 39), versions 0 to 2: extend a token, at the request of its owner or one of its renewers."""

from __future__ import annotations

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.security.create_delegation_token import require_known_peer
from barnabas.wire.errors import ApiError
from barnabas.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


async def handle(context: Context, request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse:
    """The new expiry time, wall time in ms, or -1 with an error such as DELEGATION_TOKEN_EXPIRED."""
    try:
        require_known_peer(context)
        expiry_ms = await context.services.tokens.renew(
            context.principal, request.hmac, request.renew_period_ms
        )
    except ApiError as error:
        return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expiry_ms)
