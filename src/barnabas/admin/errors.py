"""What a broker refused, for which resource, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.client.errors import BrokerError, describe
from barnabas.wire.errors import ErrorCode

MISSING_RIGHT: Final = "a rule for this user has to allow it (acls.create)"
ADVICE: Final[Mapping[int, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "check the name, or create it first (topics.create)",
    ErrorCode.TOPIC_ALREADY_EXISTS: "choose another name, or delete it first",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "use up to 249 letters, digits, dots, dashes and underscores",
    ErrorCode.INVALID_PARTITIONS: "the number of partitions can only grow",
    ErrorCode.INVALID_REPLICATION_FACTOR: "start more brokers, or ask for fewer replicas",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "name live brokers, each once, as many for every partition",
    ErrorCode.TOPIC_DELETION_DISABLED: "set delete.topic.enable=true on the brokers",
    ErrorCode.POLICY_VIOLATION: "the broker's policy decides what is allowed",
    ErrorCode.INVALID_CONFIG: "look at the option's documentation (configs.describe)",
    ErrorCode.GROUP_ID_NOT_FOUND: "check the name (groups.list)",
    ErrorCode.NON_EMPTY_GROUP: "stop the group's members first",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members: stop them first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "stop the members that read the topic first",
    ErrorCode.INVALID_GROUP_ID: "name a group",
    ErrorCode.OFFSET_OUT_OF_RANGE: "ask for the log's start and end first (records.offsets)",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "check the name (transactions.list)",
    ErrorCode.SECURITY_DISABLED: "set authorizer.class.name on the brokers",
    ErrorCode.RESOURCE_NOT_FOUND: "it has none",
    ErrorCode.UNACCEPTABLE_CREDENTIAL: "ask for 4096 to 16384 iterations, and a password that is not empty",
    ErrorCode.DUPLICATE_RESOURCE: "name it once in a request",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "set delegation.token.secret.key on the brokers",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "log in with SASL, and not with a token",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "it has expired, or the secret is another token's",
    ErrorCode.LOG_DIR_NOT_FOUND: "name one of the broker's log.dirs",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "there is nothing to cancel",
    ErrorCode.FEATURE_UPDATE_FAILED: "ask for a level that every broker supports (cluster.features)",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: MISSING_RIGHT,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: MISSING_RIGHT,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: MISSING_RIGHT,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: MISSING_RIGHT,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: MISSING_RIGHT,
    ErrorCode.BROKER_ID_NOT_REGISTERED: "check the number (cluster.describe)",
}


class ResourceError(BrokerError):
    """A broker refused something for one resource.

    resource: such as `topic orders`. reason: the broker's own words, None if it sent none. code, name: Kafka's error.
    """

    def __init__(self, code: int, action: str, resource: str, reason: str | None = None) -> None:
        self.action = action
        self.resource = resource
        self.reason = reason or None
        why = (reason or describe(code)).rstrip(". ")
        advice = ADVICE.get(code)
        super().__init__(code, f"cannot {action} {resource}", f"{why}; {advice}" if advice else why)


def refused(code: int, action: str, resource: str, reason: str | None = None) -> ResourceError | None:
    """The error of an answer's row; None if its code says that all is well."""
    return ResourceError(code, action, resource, reason) if code else None
