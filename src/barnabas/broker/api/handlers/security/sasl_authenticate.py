"""SaslAuthenticate (key 36), versions 0 to 2: one token of a login. Since 1 the answer says how long the session lasts."""

from __future__ import annotations

from barnabas.broker.api.context import Context
from barnabas.broker.api.login import Login
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

NO_LOGIN = "SaslAuthenticate request received on a listener that asks for no login"


async def handle(context: Context, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """The mechanism's next token, or SASL_AUTHENTICATION_FAILED. The lifetime of the session is in ms, 0 if it has no
    end.
    """
    login: Login | None = context.connection.sasl
    if login is None:
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=NO_LOGIN)
    error, text, token, lifetime_ms = await login.authenticate(request.auth_bytes)
    return SaslAuthenticateResponse(
        error_code=error, error_message=text, auth_bytes=token, session_lifetime_ms=lifetime_ms
    )
