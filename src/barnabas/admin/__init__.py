"""One library for administration: topics, records, options, groups, rules, quotas, users, replicas, transactions.

    from barnabas.admin import Admin, NewTopic

    with Admin("localhost:9092") as admin:
        admin.topics.create([NewTopic("orders", partitions=6)]).require()

`AsyncAdmin` is the same with `await`. Works with Apache Kafka since 0.11; see docs/admin.md.

Names of families are imported on first use, so that commands pay only for what they need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from barnabas.admin.asynchronous import AsyncAdmin
from barnabas.admin.blocking import Admin
from barnabas.admin.errors import ResourceError
from barnabas.admin.results import Results
from barnabas.admin.values import Broker, NodeId, Offset, TopicPartition

if TYPE_CHECKING:
    from barnabas.admin.families.acls import AclFilter, AclRule, Operation, Pattern, Permission, ResourceType
    from barnabas.admin.families.cluster import ClusterView, Feature, Features, Quorum, UpgradeKind
    from barnabas.admin.families.configs import (
        ChangeKind,
        Config,
        ConfigChange,
        ConfigKind,
        ConfigResource,
        ConfigSource,
        back_to_default,
        set_to,
    )
    from barnabas.admin.families.group_offsets import CommittedOffset
    from barnabas.admin.families.groups import Group, GroupListing, Member, MemberKey
    from barnabas.admin.families.inspection import (
        CheckedPart,
        ClientInstance,
        Clients,
        ConnectedClient,
        Conversion,
        DamagedPlace,
        PushedMetric,
    )
    from barnabas.admin.families.links import Link, LinkTail, MirroredPartition
    from barnabas.admin.families.log_dirs import LogDir, Replica, ReplicaLog
    from barnabas.admin.families.quotas import Match, QuotaEntity, QuotaFilter
    from barnabas.admin.families.records import (
        EARLIEST,
        LATEST,
        MAX_TIMESTAMP,
        TO_THE_END,
        Bounds,
        FoundOffset,
    )
    from barnabas.admin.families.replicas import Election, Reassignment
    from barnabas.admin.families.share_groups import ShareGroup, ShareMember, ShareOffset
    from barnabas.admin.families.streams_groups import (
        InternalTopic,
        StreamsAssignment,
        StreamsGroup,
        StreamsMember,
        Subtopology,
    )
    from barnabas.admin.families.tokens import Principal, Token
    from barnabas.admin.families.topic_bin import DeletedTopic
    from barnabas.admin.families.topics import CreatedTopic, NewTopic, Partition, Topic
    from barnabas.admin.families.transactions import (
        Fenced,
        HangingTransaction,
        ProducerState,
        Transaction,
        TransactionListing,
    )
    from barnabas.admin.families.users import Credential, Mechanism, NewCredential, OldCredential

_FAMILIES: Final = {
    "acls": ("AclFilter", "AclRule", "Operation", "Pattern", "Permission", "ResourceType"),
    "cluster": ("ClusterView", "Feature", "Features", "Quorum", "UpgradeKind"),
    "configs": (
        "ChangeKind",
        "Config",
        "ConfigChange",
        "ConfigKind",
        "ConfigResource",
        "ConfigSource",
        "back_to_default",
        "set_to",
    ),
    "group_offsets": ("CommittedOffset",),
    "groups": ("Group", "GroupListing", "Member", "MemberKey"),
    "inspection": (
        "CheckedPart",
        "ClientInstance",
        "Clients",
        "ConnectedClient",
        "Conversion",
        "DamagedPlace",
        "PushedMetric",
    ),
    "links": ("Link", "LinkTail", "MirroredPartition"),
    "log_dirs": ("LogDir", "Replica", "ReplicaLog"),
    "quotas": ("Match", "QuotaEntity", "QuotaFilter"),
    "records": ("EARLIEST", "LATEST", "MAX_TIMESTAMP", "TO_THE_END", "Bounds", "FoundOffset"),
    "replicas": ("Election", "Reassignment"),
    "share_groups": ("ShareGroup", "ShareMember", "ShareOffset"),
    "streams_groups": (
        "InternalTopic",
        "StreamsAssignment",
        "StreamsGroup",
        "StreamsMember",
        "Subtopology",
    ),
    "tokens": ("Principal", "Token"),
    "topic_bin": ("DeletedTopic",),
    "topics": ("CreatedTopic", "NewTopic", "Partition", "Topic"),
    "transactions": ("Fenced", "HangingTransaction", "ProducerState", "Transaction", "TransactionListing"),
    "users": ("Credential", "Mechanism", "NewCredential", "OldCredential"),
}
_MODULES: Final = {name: family for family, names in _FAMILIES.items() for name in names}

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "TO_THE_END",
    "AclFilter",
    "AclRule",
    "Admin",
    "AsyncAdmin",
    "Bounds",
    "Broker",
    "ChangeKind",
    "CheckedPart",
    "ClientInstance",
    "Clients",
    "ClusterView",
    "CommittedOffset",
    "Config",
    "ConfigChange",
    "ConfigKind",
    "ConfigResource",
    "ConfigSource",
    "ConnectedClient",
    "Conversion",
    "CreatedTopic",
    "Credential",
    "DamagedPlace",
    "DeletedTopic",
    "Election",
    "Feature",
    "Features",
    "Fenced",
    "FoundOffset",
    "Group",
    "GroupListing",
    "HangingTransaction",
    "InternalTopic",
    "Link",
    "LinkTail",
    "LogDir",
    "Match",
    "Mechanism",
    "Member",
    "MemberKey",
    "MirroredPartition",
    "NewCredential",
    "NewTopic",
    "NodeId",
    "Offset",
    "OldCredential",
    "Operation",
    "Partition",
    "Pattern",
    "Permission",
    "Principal",
    "ProducerState",
    "PushedMetric",
    "Quorum",
    "QuotaEntity",
    "QuotaFilter",
    "Reassignment",
    "Replica",
    "ReplicaLog",
    "ResourceError",
    "ResourceType",
    "Results",
    "ShareGroup",
    "ShareMember",
    "ShareOffset",
    "StreamsAssignment",
    "StreamsGroup",
    "StreamsMember",
    "Subtopology",
    "Token",
    "Topic",
    "TopicPartition",
    "Transaction",
    "TransactionListing",
    "UpgradeKind",
    "back_to_default",
    "set_to",
]


def __getattr__(name: str) -> Any:
    family = _MODULES.get(name)
    if family is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.families.{family}"), name)


def __dir__() -> list[str]:
    return __all__
