"""DescribeUserScramCredentials (key 50), version 0: which users have credentials for which mechanisms; never the keys."""

from __future__ import annotations

from collections import Counter

from barnabas.broker.api.context import Context
from barnabas.cores.znode_layout import DEFAULT_ENTITY, sanitize, unsanitize
from barnabas.runtime.pace import Pace
from barnabas.security.sasl.scram import CODES, decode_credential
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


async def handle(
    context: Context, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Mechanisms and iterations of the named users, or of all who have credentials; a user who is named twice gets
    DUPLICATE_RESOURCE.
    """
    configs = context.services.image.configs
    if not request.users:
        names = [
            unsanitize(name)
            for kind, name in configs
            if kind == "users" and "/" not in name and name != DEFAULT_ENTITY
        ]
        users = ((name, _infos(configs.get(("users", sanitize(name)), {}))) for name in sorted(names))
        results = [_result(name, infos) for name, infos in users if infos]
        return DescribeUserScramCredentialsResponse(results=results)
    asked = Counter(user.name for user in request.users)
    pace = Pace(context.services.clock)
    results = []
    for name, times in asked.items():
        await pace.rest()
        infos = _infos(configs.get(("users", sanitize(name)), {}))
        results.append(_repeated(name) if times > 1 else _result(name, infos))
    return DescribeUserScramCredentialsResponse(results=results)


def _infos(texts: object) -> list[CredentialInfo]:
    assert hasattr(texts, "get")
    credentials = ((code, decode_credential(texts.get(mechanism) or "")) for code, mechanism in CODES.items())
    return [
        CredentialInfo(mechanism=code, iterations=credential.iterations)
        for code, credential in credentials
        if credential is not None
    ]


def _result(name: str, infos: list[CredentialInfo]) -> DescribeUserScramCredentialsResult:
    if infos:
        return DescribeUserScramCredentialsResult(user=name, credential_infos=infos)
    return DescribeUserScramCredentialsResult(
        user=name,
        error_code=ErrorCode.RESOURCE_NOT_FOUND,
        error_message=f"Attempt to describe a user credential that does not exist: {name}",
    )


def _repeated(name: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(
        user=name,
        error_code=ErrorCode.DUPLICATE_RESOURCE,
        error_message=f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}",
    )
