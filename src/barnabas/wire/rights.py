"""The rights that each API requires: the column `authorize` of the table of APIs.

A right names an operation, a type of resource, and where the request names the resource: in one field (`Whole`; the
request is refused if the right is missing), or in each row of a list (`Each`; refused rows get an error while the others
are served). If that is not enough, the handler itself checks (`Asked`). Source: Kafka's KafkaApis.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Whole(NamedTuple):
    """Applies to the whole request. of: the field with the resource's name; "" for the cluster, which has no name."""

    operation: str
    resource: str
    of: str = ""


class Each(NamedTuple):
    """Applies to each row of a list in the request.

    rows, answers: the lists in request and answer. parts: the lists of partitions in their rows, if these have the errors.
    or_cluster: an operation on the cluster that suffices instead. together: one refused row prevents all others.
    resource "CONFIG": determined by the row's resource_type.
    """

    operation: str
    resource: str
    rows: str
    answers: str
    parts: tuple[str, str] | None = None
    or_cluster: str = ""
    together: bool = False


class Asked(NamedTuple):
    """The handler itself checks the rights, depending on what it finds."""

    operation: str
    resource: str


Right = Whole | Each | Asked
OPEN: Final[tuple[Right, ...]] = ()
"""Allowed for every connected client."""

_DESCRIBE_CLUSTER: Final = (Whole("DESCRIBE", "CLUSTER"),)
_ALTER_CLUSTER: Final = (Whole("ALTER", "CLUSTER"),)
_READ_GROUP: Final = (Whole("READ", "GROUP", "group_id"),)
_WRITE_TXN: Final = Whole("WRITE", "TRANSACTIONAL_ID", "transactional_id")
_PARTITIONS: Final = ("partitions", "partitions")

RIGHTS: Final[Mapping[int, tuple[Right, ...]]] = {
    0: (
        _WRITE_TXN,
        Each("WRITE", "TOPIC", "topic_data", "responses", ("partition_data", "partition_responses")),
    ),
    1: (Asked("READ", "TOPIC"), Asked("CLUSTER_ACTION", "CLUSTER")),
    2: (Each("DESCRIBE", "TOPIC", "topics", "topics", _PARTITIONS),),
    3: (Asked("DESCRIBE", "TOPIC"), Asked("CREATE", "TOPIC")),
    8: (*_READ_GROUP, Each("READ", "TOPIC", "topics", "topics", _PARTITIONS)),
    9: (
        Whole("DESCRIBE", "GROUP", "group_id"),
        Each("DESCRIBE", "GROUP", "groups", "groups"),
        Each("DESCRIBE", "TOPIC", "topics", "topics", ("partition_indexes", "partitions")),
        Asked("DESCRIBE", "TOPIC"),
    ),
    10: (
        Asked("DESCRIBE", "GROUP"),
        Asked("DESCRIBE", "TRANSACTIONAL_ID"),
        Asked("CLUSTER_ACTION", "CLUSTER"),
    ),
    11: _READ_GROUP,
    12: _READ_GROUP,
    13: _READ_GROUP,
    14: _READ_GROUP,
    15: (Each("DESCRIBE", "GROUP", "groups", "groups"),),
    16: (Asked("DESCRIBE", "CLUSTER"), Asked("DESCRIBE", "GROUP")),
    17: OPEN,
    18: OPEN,
    19: (
        Each("CREATE", "TOPIC", "topics", "topics", or_cluster="CREATE"),
        Asked("DESCRIBE_CONFIGS", "TOPIC"),
    ),
    20: (
        Each("DELETE", "TOPIC", "topics", "responses"),
        Each("DELETE", "TOPIC", "topic_names", "responses"),
    ),
    21: (Each("DELETE", "TOPIC", "topics", "topics", _PARTITIONS),),
    22: (_WRITE_TXN, Asked("IDEMPOTENT_WRITE", "CLUSTER"), Asked("WRITE", "TOPIC")),
    23: (Each("DESCRIBE", "TOPIC", "topics", "topics", _PARTITIONS, or_cluster="CLUSTER_ACTION"),),
    24: (
        Whole("WRITE", "TRANSACTIONAL_ID", "v3_and_below_transactional_id"),
        Each(
            "WRITE",
            "TOPIC",
            "v3_and_below_topics",
            "results_by_topic_v3_and_below",
            ("partitions", "results_by_partition"),
            together=True,
        ),
        Asked("CLUSTER_ACTION", "CLUSTER"),
    ),
    25: (_WRITE_TXN, *_READ_GROUP),
    26: (_WRITE_TXN,),
    27: (Asked("CLUSTER_ACTION", "CLUSTER"),),  # or ALTER (KIP-1037)
    28: (_WRITE_TXN, *_READ_GROUP, Each("READ", "TOPIC", "topics", "topics", _PARTITIONS)),
    29: _DESCRIBE_CLUSTER,
    30: (Asked("ALTER", "CLUSTER"),),
    31: (Asked("ALTER", "CLUSTER"),),
    32: (Each("DESCRIBE_CONFIGS", "CONFIG", "resources", "results"),),
    33: (Each("ALTER_CONFIGS", "CONFIG", "resources", "responses"),),
    34: (Asked("ALTER", "CLUSTER"),),
    35: (Asked("DESCRIBE", "CLUSTER"),),
    36: OPEN,
    37: (Each("ALTER", "TOPIC", "topics", "results"),),
    38: (Asked("CREATE_TOKENS", "USER"),),
    39: OPEN,  # to a token's owner and renewers
    40: OPEN,
    41: (Asked("DESCRIBE", "DELEGATION_TOKEN"), Asked("DESCRIBE_TOKENS", "USER")),
    42: (Each("DELETE", "GROUP", "groups_names", "results"),),
    43: (Asked("ALTER", "CLUSTER"),),
    44: (Each("ALTER_CONFIGS", "CONFIG", "resources", "responses"),),
    45: _ALTER_CLUSTER,
    46: _DESCRIBE_CLUSTER,
    47: (Whole("DELETE", "GROUP", "group_id"), Each("READ", "TOPIC", "topics", "topics", _PARTITIONS)),
    48: (Whole("DESCRIBE_CONFIGS", "CLUSTER"),),
    49: (Asked("ALTER_CONFIGS", "CLUSTER"),),
    50: _DESCRIBE_CLUSTER,
    51: (Asked("ALTER", "CLUSTER"),),
    55: _DESCRIBE_CLUSTER,
    60: OPEN,
    61: (Each("READ", "TOPIC", "topics", "topics", ("partition_indexes", "partitions")),),
    65: (
        Each("DESCRIBE", "TRANSACTIONAL_ID", "transactional_ids", "transaction_states"),
        Asked("DESCRIBE", "TOPIC"),
    ),
    66: (Asked("DESCRIBE", "TRANSACTIONAL_ID"),),
    68: (*_READ_GROUP, Asked("DESCRIBE", "TOPIC")),
    69: (Each("DESCRIBE", "GROUP", "group_ids", "groups"), Asked("DESCRIBE", "TOPIC")),
    71: OPEN,
    72: OPEN,
    74: (Whole("DESCRIBE_CONFIGS", "CLUSTER"),),
    75: (Asked("DESCRIBE", "TOPIC"),),
    76: (*_READ_GROUP, Asked("DESCRIBE", "TOPIC")),
    77: (Each("DESCRIBE", "GROUP", "group_ids", "groups"), Asked("DESCRIBE", "TOPIC")),
    78: (*_READ_GROUP, Each("READ", "TOPIC", "topics", "responses", _PARTITIONS)),
    79: (*_READ_GROUP, Each("READ", "TOPIC", "topics", "responses", _PARTITIONS)),
    83: (Asked("CLUSTER_ACTION", "CLUSTER"),),
    84: (Asked("CLUSTER_ACTION", "CLUSTER"),),
    85: (Asked("CLUSTER_ACTION", "CLUSTER"),),
    86: (Asked("CLUSTER_ACTION", "CLUSTER"),),
    87: (Asked("CLUSTER_ACTION", "CLUSTER"),),
    90: (Each("DESCRIBE", "GROUP", "groups", "groups"), Asked("DESCRIBE", "TOPIC")),
    91: (*_READ_GROUP, Each("READ", "TOPIC", "topics", "responses", _PARTITIONS)),
    92: (Whole("DELETE", "GROUP", "group_id"), Each("READ", "TOPIC", "topics", "responses")),
    30000: _DESCRIBE_CLUSTER,
    30001: _DESCRIBE_CLUSTER,
    30002: _DESCRIBE_CLUSTER,
}
"""By API key. The program does not start with an API that has no entry here."""
