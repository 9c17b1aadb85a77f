"""SCRAM credentials of users, for kafka-configs: the password itself never leaves this program."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from barnabas.client.errors import UnsupportedByBroker
from barnabas.kafka_tools.common import Admin, ToolError, java_error
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages import alter_user_scram_credentials as alter
from barnabas.wire.messages import describe_user_scram_credentials as describe


class Mechanism(NamedTuple):
    """One of SCRAM's: its number in the protocol and its hash."""

    code: int
    digest: str
    iterations_min: int


MECHANISMS: Final = {
    "SCRAM-SHA-256": Mechanism(1, "sha256", 4096),
    "SCRAM-SHA-512": Mechanism(2, "sha512", 4096),
}
ITERATIONS_MAX: Final = 16384
SALT_BYTES: Final = 32
FIELD: Final = re.compile(r"(iterations|password)=([^,]*)")


def write(admin: Admin, user: str, add: Mapping[str, str], remove: Sequence[str]) -> None:
    """Set credentials (`iterations=8192,password=secret` by mechanism) and remove others. Raises ToolError."""
    request = alter.AlterUserScramCredentialsRequest(
        upsertions=[upsertion(user, name, text) for name, text in add.items()],
        deletions=[
            alter.ScramCredentialDeletion(name=user, mechanism=MECHANISMS[name].code) for name in remove
        ],
    )
    answer = admin.controller(request, alter.AlterUserScramCredentialsResponse)
    for result in answer.results:
        if result.error_code:
            raise ToolError(java_error(result.error_code, result.error_message))


def upsertion(user: str, name: str, text: str) -> alter.ScramCredentialUpsertion:
    """One credential with a fresh salt. Raises ToolError."""
    mechanism = MECHANISMS[name]
    iterations, password = parse_fields(name, text)
    salt = os.urandom(SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)
    return alter.ScramCredentialUpsertion(
        name=user, mechanism=mechanism.code, iterations=iterations, salt=salt, salted_password=salted
    )


def parse_fields(name: str, text: str) -> tuple[int, str]:
    """(iterations, password) of `iterations=8192,password=secret`. Raises ToolError."""
    mechanism, fields = MECHANISMS[name], dict(FIELD.findall(text))
    iterations = (
        int(fields["iterations"]) if fields.get("iterations", "").isdigit() else mechanism.iterations_min
    )
    if not fields.get("password"):
        raise ToolError(f"{name} needs a password: {name}=[iterations=8192,password=secret]")
    if not mechanism.iterations_min <= iterations <= ITERATIONS_MAX:
        raise ToolError(f"Iterations must be from {mechanism.iterations_min} to {ITERATIONS_MAX} for {name}")
    return iterations, fields["password"]


def show(admin: Admin, user: str | None) -> None:
    """Print which credentials users have; nothing where the broker keeps none. Raises ToolError."""
    users = None if user is None else [describe.UserName(name=user)]
    try:
        answer = admin.any(
            describe.DescribeUserScramCredentialsRequest(users=users),
            describe.DescribeUserScramCredentialsResponse,
        )
    except UnsupportedByBroker:
        return
    names = {mechanism.code: name for name, mechanism in MECHANISMS.items()}
    for result in answer.results:
        if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        if result.error_code:
            raise ToolError(java_error(result.error_code, result.error_message))
        shown = ", ".join(
            f"{names.get(info.mechanism, 'UNKNOWN')}=iterations={info.iterations}"
            for info in result.credential_infos
        )
        print(f"SCRAM credential configs for user-principal '{result.user}' are {shown}")
