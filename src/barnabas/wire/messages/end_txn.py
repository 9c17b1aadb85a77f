"""EndTxn (key 26): commit or abort a transaction."""

from __future__ import annotations

from barnabas.wire.schema import Request, Response, boolean, int16, int32, int64, string


class EndTxnRequest(Request, key=26, versions=(0, 5), flexible=3):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


class EndTxnResponse(Response, key=26, versions=(0, 5), flexible=3):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)
