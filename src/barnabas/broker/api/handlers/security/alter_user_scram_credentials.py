"""AlterUserScramCredentials (key 51), version 0: set and delete users' credentials. The password itself never arrives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from barnabas.broker.api.access import refuse
from barnabas.broker.api.context import Context
from barnabas.cores.acl import Operation
from barnabas.security.sasl import scram
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

Change = ScramCredentialDeletion | ScramCredentialUpsertion


async def handle(
    context: Context, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """All changes of one user are made together or refused together; the results name each user once."""
    changes: list[Change] = [*request.deletions, *request.upsertions]
    by_user: dict[str, list[Change]] = {}
    for change in changes:
        by_user.setdefault(change.name, []).append(change)
    results = []
    for user, wanted in by_user.items():
        result = AlterUserScramCredentialsResult(user=user)
        try:
            if not context.allows_cluster(Operation.ALTER):
                raise refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            await context.services.controller.options.alter_credentials(user, _altered(user, wanted))
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return AlterUserScramCredentialsResponse(results=results)


def _altered(user: str, changes: list[Change]) -> Callable[[dict[str, str]], dict[str, str]]:
    """A function from a user's stored texts to the changed ones. Both this and the returned function raise ApiError."""
    if not user:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if any(times > 1 for times in Counter(change.mechanism for change in changes).values()):
        raise ApiError(
            ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
        )
    new: dict[str, str | None] = {}
    for change in changes:
        mechanism = scram.CODES.get(change.mechanism)
        if mechanism is None:
            raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        new[mechanism] = _text(mechanism, change) if isinstance(change, ScramCredentialUpsertion) else None

    def altered(texts: dict[str, str]) -> dict[str, str]:
        for mechanism, text in new.items():
            if text is not None:
                texts[mechanism] = text
            elif texts.pop(mechanism, None) is None:
                raise ApiError(
                    ErrorCode.RESOURCE_NOT_FOUND,
                    f"Attempt to delete a user credential that does not exist: {user}",
                )
        return texts

    return altered


def _text(mechanism: str, change: ScramCredentialUpsertion) -> str:
    lowest, highest = scram.ITERATIONS_MIN, scram.ITERATIONS_MAX
    if change.iterations < lowest:
        raise ApiError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too few iterations; {mechanism} needs {lowest} at least"
        )
    if change.iterations > highest:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too many iterations; {highest} are allowed")
    if not change.salt or not change.salted_password:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salt and salted password must not be empty")
    credential = scram.credential_of(mechanism, change.salt, change.salted_password, change.iterations)
    return scram.encode_credential(credential)
