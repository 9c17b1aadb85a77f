"""ExpireDelegationToken (key 40), versions 0 to 2: change when a token expires; a negative period ends it at once."""

from __future__ import annotations

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.security.create_delegation_token import require_known_peer
from barnabas.wire.errors import ApiError
from barnabas.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


async def handle(context: Context, request: ExpireDelegationTokenRequest) -> ExpireDelegationTokenResponse:
    """The new expiry time, wall time in ms, or -1 with an error such as DELEGATION_TOKEN_NOT_FOUND."""
    try:
        require_known_peer(context)
        expiry_ms = await context.services.tokens.expire(
            context.principal, request.hmac, request.expiry_time_period_ms
        )
    except ApiError as error:
        return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry_ms)
