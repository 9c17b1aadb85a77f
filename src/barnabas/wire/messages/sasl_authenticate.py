"""SaslAuthenticate (key 36): carry one SASL token."""

from __future__ import annotations

from barnabas.wire.schema import Request, Response, bytes_, int16, int64, string


class SaslAuthenticateRequest(Request, key=36, versions=(0, 2), flexible=2):
    auth_bytes: bytes = bytes_()


class SaslAuthenticateResponse(Response, key=36, versions=(0, 2), flexible=2):
    error_code: int = int16()
    error_message: str | None = string(null="0+")
    auth_bytes: bytes = bytes_()
    session_lifetime_ms: int = int64("1+", ignorable=True)
