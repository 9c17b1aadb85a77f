"""Kafka's errors as the REST API reports them: an error code of Confluent's API and one sentence."""

from __future__ import annotations

import json
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from barnabas.admin import ResourceError
from barnabas.client.errors import (
    AuthenticationFailed,
    BrokerError,
    BrokerUnavailable,
    ClientError,
    UnsupportedByBroker,
)
from barnabas.http.errors import HttpError

V2_MEDIA_TYPE: Final = "application/vnd.kafka.v2+json"
JSON_MEDIA_TYPE: Final = "application/json"

TOPIC_NOT_FOUND: Final = 40401
PARTITION_NOT_FOUND: Final = 40402
INSTANCE_NOT_FOUND: Final = 40403
UNKNOWN_TOPIC_OR_PARTITION: Final = 40403
FORMAT_MISMATCH: Final = 40601
ALREADY_SUBSCRIBED: Final = 40901
INSTANCE_EXISTS: Final = 40902
ILLEGAL_STATE: Final = 40903
KEY_SCHEMA_MISSING: Final = 42201
VALUE_SCHEMA_MISSING: Final = 42202
CONVERSION_FAILED: Final = 42203
BAD_CONSUMER_CONFIG: Final = 42204
INVALID_SCHEMA: Final = 42205
INVALID_PAYLOAD: Final = 42206
"""Of v3; v2 answers with 422 instead."""
TOPIC_EXISTS: Final = 40002
KAFKA_ERROR: Final = 50002
RETRIABLE_ERROR: Final = 50003

_FROM_KAFKA: Final = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: (404, UNKNOWN_TOPIC_OR_PARTITION),
    KafkaError._UNKNOWN_TOPIC: (404, UNKNOWN_TOPIC_OR_PARTITION),
    KafkaError._UNKNOWN_PARTITION: (404, UNKNOWN_TOPIC_OR_PARTITION),
    KafkaError.GROUP_ID_NOT_FOUND: (404, 40403),
    KafkaError.TOPIC_ALREADY_EXISTS: (400, TOPIC_EXISTS),
    KafkaError.INVALID_CONFIG: (400, 40002),
    KafkaError.POLICY_VIOLATION: (400, 40002),
    KafkaError.SECURITY_DISABLED: (400, 40002),
    KafkaError.INVALID_PARTITIONS: (400, 40002),
    KafkaError.INVALID_REPLICATION_FACTOR: (400, 40002),
    KafkaError.INVALID_REPLICA_ASSIGNMENT: (400, 40002),
    KafkaError.INVALID_REQUEST: (400, 40002),
    KafkaError.TOPIC_EXCEPTION: (400, 40002),
    KafkaError._INVALID_ARG: (400, 40002),
    KafkaError.UNSUPPORTED_VERSION: (400, 40002),
    KafkaError._UNSUPPORTED_FEATURE: (400, 40002),
    KafkaError.MSG_SIZE_TOO_LARGE: (413, 413),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: (403, 40301),
    KafkaError.GROUP_AUTHORIZATION_FAILED: (403, 40301),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: (403, 40301),
    KafkaError._AUTHENTICATION: (401, 40101),
    KafkaError.SASL_AUTHENTICATION_FAILED: (401, 40101),
}
_RETRIABLE: Final = frozenset(
    {
        KafkaError._TIMED_OUT, KafkaError._MSG_TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE, KafkaError._WAIT_COORD, KafkaError._QUEUE_FULL, KafkaError._FATAL, KafkaError._PURGE_QUEUE,
        KafkaError._TIMED_OUT_QUEUE, KafkaError.REQUEST_TIMED_OUT, KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.NETWORK_EXCEPTION, KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR, KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.REBALANCE_IN_PROGRESS, KafkaError.THROTTLING_QUOTA_EXCEEDED,
    }
)  # fmt: skip


def error_shape(error: HttpError, request_id: str) -> tuple[bytes, str]:
    """An error as the REST API writes it."""
    return error_body(error.code, error.message), JSON_MEDIA_TYPE


def error_body(code: int, message: str) -> bytes:
    """{"error_code": number, "message": sentence}."""
    text = json.dumps({"error_code": code, "message": message}, ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")


def is_retriable(error: KafkaError) -> bool:
    """Whether the same request may succeed when it is sent again."""
    return error.code() in _RETRIABLE or bool(error.retriable())


def from_kafka(error: KafkaError) -> HttpError:
    """The HTTP error for an error from Kafka or librdkafka."""
    message = error.str().rstrip(".") or error.name()
    known = _FROM_KAFKA.get(error.code())
    if known is not None:
        return HttpError(known[0], message, known[1])
    if is_retriable(error):
        return HttpError(500, f"{message}; the same request may succeed later", RETRIABLE_ERROR)
    return HttpError(500, message, KAFKA_ERROR)


def from_exception(error: KafkaException) -> HttpError:
    """The HTTP error for an exception of confluent-kafka, see `from_kafka`."""
    return from_kafka(error.args[0])


def from_client(error: ClientError) -> HttpError:
    """The HTTP error for an error of `barnabas.admin`."""
    if isinstance(error, ResourceError):
        return from_kafka(KafkaError(error.code, error.reason))
    if isinstance(error, BrokerError):
        return from_kafka(KafkaError(error.code, str(error)))
    if isinstance(error, AuthenticationFailed):
        return HttpError(401, str(error), 40101)
    if isinstance(error, BrokerUnavailable):
        return HttpError(500, f"{error}; the same request may succeed later", RETRIABLE_ERROR)
    if isinstance(error, UnsupportedByBroker):
        return HttpError(400, str(error), 40002)
    return HttpError(500, str(error), KAFKA_ERROR)
