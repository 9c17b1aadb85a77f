"""`barnabas.admin` for commands: the cluster that -b and -X name, and one-line errors that say what to do."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from barnabas.admin import Admin, ResourceError
from barnabas.client.errors import (
    BrokerUnavailable,
    ClientError,
    CredentialsRefused,
    UnsupportedByBroker,
    describe,
)
from barnabas.client.options import ClientOptions
from barnabas.terminal.connection import REQUEST_TIMEOUT_SECONDS, ClusterAddress, connect
from barnabas.terminal.errors import CliError
from barnabas.terminal.output import MANNER
from barnabas.wire.errors import ErrorCode

MAY_NOT: Final = "this user lacks a right on the {}; `barnabas acl add` gives it"
HINTS: Final[Mapping[int, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic; `barnabas topic list` shows what is there",
    ErrorCode.TOPIC_ALREADY_EXISTS: "the topic is there already; --if-not-exists accepts that",
    ErrorCode.GROUP_ID_NOT_FOUND: "no such group; `barnabas group list` shows what is there",
    ErrorCode.NON_EMPTY_GROUP: "the group still has members; stop its consumers first",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: MAY_NOT.format("topic"),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: MAY_NOT.format("group"),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: MAY_NOT.format("transactional id"),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: MAY_NOT.format("cluster"),
}
"""What to do in words of the command line."""


@contextlib.contextmanager
def administer(
    bootstrap: str | None, properties: Iterable[str] | None, verbose: bool = False
) -> Iterator[Admin]:
    """An admin of the cluster that -b and -X name. Every failure inside is raised as CliError."""
    with administering(connect(bootstrap, properties, verbose)) as admin:
        yield admin


@contextlib.contextmanager
def administering(connection: ClusterAddress, timeout_s: float = REQUEST_TIMEOUT_SECONDS) -> Iterator[Admin]:
    """An admin of the connection's cluster. Raises CliError at once if no broker answers, and for every failure inside."""
    connection.require_reachable()
    if connection.verbose or MANNER.verbose:
        show_requests()
    with explained(), Admin(options_of(connection, timeout_s)) as admin:
        yield admin


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Errors of the client inside are raised as CliError."""
    try:
        yield
    except ClientError as error:
        raise CliError(explain_error(error)) from None


def options_of(connection: ClusterAddress, timeout_s: float = REQUEST_TIMEOUT_SECONDS) -> ClientOptions:
    """How our own client reaches the connection's cluster. Raises ClientError."""
    named = {"client.id": "barnabas", **connection.properties, "bootstrap.servers": connection.bootstrap}
    options = ClientOptions.from_kafka(named)
    return replace(
        options,
        contact_timeout_s=0.0,
        deadline_s=min(options.deadline_s, timeout_s),
        request_timeout_s=min(options.request_timeout_s, timeout_s),
    )


def explain_error(error: ClientError) -> str:
    """What happened and what to do, on one line."""
    if isinstance(error, ResourceError):
        reason = (error.reason or describe(error.code)).rstrip(".")
        hint = HINTS.get(error.code)
        return f"{reason} ({hint})" if hint else reason
    if isinstance(error, CredentialsRefused):
        return f"{error}; check sasl.mechanism, sasl.username and sasl.password"
    if isinstance(error, BrokerUnavailable):
        return f"{error}; see the broker's log, or name another with {MANNER.address_option} HOST:PORT"
    if isinstance(error, UnsupportedByBroker):
        return f"the broker is too old for this request: {error}"
    return str(error)


@contextlib.contextmanager
def saying(doing: str) -> Iterator[None]:
    """Errors inside are raised as CliError that begins with `doing`."""
    try:
        yield
    except ClientError as error:
        raise CliError(f"{doing}: {explain_error(error)}") from None


def show_requests() -> None:
    """Write what our own client sends to standard error, as -v does with librdkafka's log."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))
    logger = logging.getLogger("barnabas.client")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.DEBUG)
