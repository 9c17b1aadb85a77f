"""Configs about clients: client-metrics subscriptions and quota keys."""

from __future__ import annotations

import re
from typing import Final

from barnabas.config.option import INT_MAX, Mark, OptionTable

CLIENT_METRICS: Final = OptionTable("Client metrics options")
QUOTA: Final = OptionTable("Quota keys")

WORKS: Final = Mark.WORKS

MATCH_KEYS: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


def match_patterns(value: tuple[str, ...]) -> str | None:
    """Checks key=regular expression pairs; returns what is wrong, or None."""
    for item in value:
        key, equals, pattern = item.partition("=")
        if not equals or key.strip() not in MATCH_KEYS:
            return f"{item!r} must be KEY=REGEX with one of {', '.join(MATCH_KEYS)}"
        try:
            re.compile(pattern)
        except re.error as error:
            return f"{pattern!r} is not a regular expression: {error}"
    return None


METRICS: Final = CLIENT_METRICS.strings(
    "metrics", (), "Prefixes of the requested client metrics; `*` means all.", mark=WORKS
)
INTERVAL_MS: Final = CLIENT_METRICS.integer(
    "interval.ms", 300_000, "How often clients send them.", lo=100, hi=3_600_000, mark=WORKS
)
MATCH: Final = CLIENT_METRICS.strings(
    "match",
    (),
    "Which clients send metrics, as key=regular expression pairs that must all match.",
    check=match_patterns,
    mark=WORKS,
)

PRODUCER_BYTE_RATE: Final = QUOTA.long(
    "producer_byte_rate",
    INT_MAX,
    "Bytes per second that a user or client id may produce on each broker.",
    lo=1,
    mark=WORKS,
)
CONSUMER_BYTE_RATE: Final = QUOTA.long(
    "consumer_byte_rate",
    INT_MAX,
    "Bytes per second that a user or client id may fetch from each broker.",
    lo=1,
    mark=WORKS,
)
REQUEST_PERCENTAGE: Final = QUOTA.double(
    "request_percentage",
    float(INT_MAX),
    "Share of a broker's request time that a user or client id may take, in percent of one thread.",
    lo=0,
    mark=WORKS,
)
CONTROLLER_MUTATION_RATE: Final = QUOTA.double(
    "controller_mutation_rate",
    float(INT_MAX),
    "Partitions per second that a user or client id may create or delete.",
    lo=0,
    mark=WORKS,
)
CONNECTION_CREATION_RATE: Final = QUOTA.integer(
    "connection_creation_rate", INT_MAX, "New connections per second from an IP address.", lo=0, mark=WORKS
)

USER_QUOTAS: Final = frozenset(
    {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}
)
IP_QUOTAS: Final = frozenset({"connection_creation_rate"})
