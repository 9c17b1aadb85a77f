"""What all connections of one loop share."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.broker.net.buffers import Buffers
from barnabas.broker.net.room import RequestRoom
from barnabas.broker.net.senders import Senders
from barnabas.broker.net.turn import Turn


@dataclass(frozen=True, slots=True)
class Shared:
    """What all connections of one loop share. request_bytes_max: socket.request.max.bytes."""

    turn: Turn
    buffers: Buffers
    senders: Senders
    room: RequestRoom
    request_bytes_max: int
