"""Keys and values of control records: the ends of transactions, and KRaft's change of leader.

A control record's key is an int16 version and an int16 type; the value depends on the type.
"""

from __future__ import annotations

from enum import IntEnum
from uuid import UUID

from barnabas.wire.schema import Data, Struct, array, int16, int32, uuid


class ControlType(IntEnum):
    """The `type` of a ControlRecordType; readers skip a type they do not know."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class ControlRecordType(Data, versions=(0, 0), read_newer=True):
    type: int = int16()


class EndTxnMarker(Data, versions=(0, 0), read_newer=True):
    coordinator_epoch: int = int32()


class Voter(Struct):
    voter_id: int = int32()
    voter_directory_id: UUID = uuid("1+", ignorable=True)


class LeaderChangeMessage(Data, versions=(0, 1), flexible=0):
    """Its bytes contain the version as the first field, without the int16 in front that others have."""

    version: int = int16()
    leader_id: int = int32()
    voters: list[Voter] = array(Voter)
    granting_voters: list[Voter] = array(Voter)
