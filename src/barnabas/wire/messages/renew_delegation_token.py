"""RenewDelegationToken (key 39): extend the life of a delegation token."""

from __future__ import annotations

from barnabas.wire.schema import Request, Response, bytes_, int16, int32, int64


class RenewDelegationTokenRequest(Request, key=39, versions=(0, 2), flexible=2):
    hmac: bytes = bytes_()
    renew_period_ms: int = int64()


class RenewDelegationTokenResponse(Response, key=39, versions=(0, 2), flexible=2):
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
