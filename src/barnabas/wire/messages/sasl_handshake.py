"""SaslHandshake (key 17): choose a SASL mechanism."""

from __future__ import annotations

from barnabas.wire.schema import Request, Response, array, int16, string


class SaslHandshakeRequest(Request, key=17, versions=(0, 1)):
    mechanism: str = string()


class SaslHandshakeResponse(Response, key=17, versions=(0, 1)):
    error_code: int = int16()
    mechanisms: list[str] = array(string)
