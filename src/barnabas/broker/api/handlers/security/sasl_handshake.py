"""SaslHandshake (key 17), versions 0 and 1: the client chooses a mechanism.

After version 0 the client sends its SASL tokens without a request around them (broker/api/login.py).
"""

from __future__ import annotations

from barnabas.broker.api.context import Context
from barnabas.broker.api.login import Login
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(context: Context, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """The mechanisms of the listener, with UNSUPPORTED_SASL_MECHANISM if the wanted one is not among them."""
    login: Login | None = context.connection.sasl
    if login is None:  # a listener without logins
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    error, mechanisms = login.handshake(request.mechanism, context.version)
    return SaslHandshakeResponse(error_code=error, mechanisms=mechanisms)
