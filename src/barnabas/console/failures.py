"""What clusters and registries refuse, as refusals that a page shows."""

from __future__ import annotations

from typing import Final

from barnabas.admin.errors import ADVICE
from barnabas.client.errors import (
    AuthenticationFailed,
    BrokerError,
    BrokerUnavailable,
    ClientError,
    UnsupportedByBroker,
)
from barnabas.client.registry import NoRegistry, RegistryError
from barnabas.console.said import Refused, said
from barnabas.wire.errors import ErrorCode

FORBIDDEN: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)
MISSING: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        ErrorCode.RESOURCE_NOT_FOUND,
    }
)


def refusal_of(error: Exception) -> Refused | None:
    """The refusal; None for an error that is the console's own."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, BrokerUnavailable):
        return Refused(
            503,
            said("The cluster does not answer: {reason}", reason=str(error)),
            said(
                "Check that its brokers run, and that the console reaches them. This page tries again by itself."
            ),
        )
    if isinstance(error, AuthenticationFailed):
        return Refused(
            502,
            said("The cluster refuses the console's login: {reason}", reason=str(error)),
            said("Correct the console's own user and password, or its certificate."),
        )
    if isinstance(error, UnsupportedByBroker):
        return Refused(501, said("The cluster is too old for this: {reason}", reason=str(error)))
    if isinstance(error, BrokerError):
        return _of_broker(error)
    if isinstance(error, ClientError):
        return Refused(502, said("{reason}", reason=str(error)))
    if isinstance(error, NoRegistry):
        return Refused(
            503,
            said("The schema registry does not answer: {reason}", reason=str(error)),
            said("Check that it runs, and that --registry names it."),
        )
    if isinstance(error, RegistryError):
        code = error.code // 100 if error.code >= 1000 else error.code
        return Refused(
            code if 400 <= code < 500 else 502, said("The registry refuses: {reason}", reason=str(error))
        )
    return None


def _of_broker(error: BrokerError) -> Refused:
    if error.code in FORBIDDEN:
        return Refused(
            403,
            said("The cluster does not allow it: {reason}", reason=str(error)),
            said("The console's own user needs a rule that allows it."),
        )
    status = 404 if error.code in MISSING else 409
    return Refused(status, said("{reason}", reason=_without_advice(error)))


def _without_advice(error: BrokerError) -> str:
    """Advice of the library names its methods, which do not help whoever looks at a page."""
    text, advice = str(error), ADVICE.get(error.code)
    return text.removesuffix(f"; {advice}") if advice and "(" in advice else text
