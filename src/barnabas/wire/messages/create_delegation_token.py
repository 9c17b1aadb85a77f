"""CreateDelegationToken (key 38): create a delegation token."""

from __future__ import annotations

from barnabas.wire.schema import Request, Response, Struct, array, bytes_, int16, int32, int64, string


class CreatableRenewers(Struct):
    principal_type: str = string()
    principal_name: str = string()


class CreateDelegationTokenRequest(Request, key=38, versions=(0, 3), flexible=2):
    owner_principal_type: str | None = string("3+", null="3+")
    owner_principal_name: str | None = string("3+", null="3+")
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()


class CreateDelegationTokenResponse(Response, key=38, versions=(0, 3), flexible=2):
    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+", ignorable=True)
    token_requester_principal_name: str = string("3+", ignorable=True)
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = bytes_()
    throttle_time_ms: int = int32()
