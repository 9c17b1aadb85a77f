"""The errors of the client, each with a message that says what to do."""

from __future__ import annotations

from typing import Final

from barnabas.wire.errors import ErrorCode


class ClientError(Exception):
    """Base class of all errors that the client raises."""


class BrokerUnavailable(ClientError):
    """No broker could be reached, or the broker went away and did not come back in time."""


class AuthenticationFailed(ClientError):
    """The broker refused the credentials, or the TLS handshake failed."""


class CredentialsRefused(AuthenticationFailed):
    """The broker refused the user, the password or the token."""


class UnsupportedByBroker(ClientError):
    """The broker supports no version of the request that this client supports. api: the request's name."""

    def __init__(self, message: str, api: str = "") -> None:
        self.api = api
        super().__init__(message)


class UnknownTopic(ClientError):
    """The topic or partition does not exist."""


class BrokerError(ClientError):
    """The broker answered with an error code."""

    def __init__(self, code: int, doing: str, message: str | None = None) -> None:
        self.code = code
        self.name = error_name(code)
        super().__init__(f"{doing}: {message or describe(code)} ({self.name})")


_HINTS: Final[dict[str, str]] = {
    "UNKNOWN_TOPIC_OR_PARTITION": "the topic or partition does not exist",
    "OFFSET_OUT_OF_RANGE": "the offset is before the log's start or after its end",
    "TOPIC_AUTHORIZATION_FAILED": "not authorized for this topic",
    "GROUP_AUTHORIZATION_FAILED": "not authorized for this group",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "not authorized for this transactional id",
    "CLUSTER_AUTHORIZATION_FAILED": "not authorized for this cluster",
    "MESSAGE_TOO_LARGE": "the batch is larger than the topic's max.message.bytes",
    "RECORD_LIST_TOO_LARGE": "the batch is larger than a log segment",
    "INVALID_TOPIC_EXCEPTION": "the topic name is not legal",
    "TOPIC_ALREADY_EXISTS": "the topic exists already",
    "NOT_ENOUGH_REPLICAS": "fewer replicas are in sync than min.insync.replicas asks for",
    "UNKNOWN_MEMBER_ID": "the group has active members; offsets can be set once it is empty",
    "INVALID_RECORD": "the broker refused a record: a compacted topic needs a key in each",
    "UNSUPPORTED_COMPRESSION_TYPE": "the broker does not take this compression",
}


def error_name(code: int) -> str:
    """Kafka's name for an error code."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def describe(code: int) -> str:
    name = error_name(code)
    return _HINTS.get(name, name.lower().replace("_", " "))
