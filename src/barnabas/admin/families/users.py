"""SCRAM credentials of users. Since Kafka 2.7."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from barnabas.admin.errors import ResourceError
from barnabas.admin.looping import Family, blocking
from barnabas.admin.results import Results
from barnabas.admin.spread import spread, to_controller
from barnabas.client.async_cluster import AsyncCluster
from barnabas.client.async_connection import AsyncConnection
from barnabas.client.errors import ClientError
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages import alter_user_scram_credentials as wire_alter
from barnabas.wire.messages import describe_user_scram_credentials as wire_describe

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
SALT_BYTES: Final = 32


class Mechanism(IntEnum):
    """How a user logs in; the numbers are the protocol's."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def label(self) -> str:
        """Kafka's name: `SCRAM-SHA-256`."""
        return self.name.replace("_", "-")

    @property
    def digest(self) -> str:
        return "sha512" if self is Mechanism.SCRAM_SHA_512 else "sha256"


class Credential(NamedTuple):
    """A credential that a user has; nobody can read its password."""

    mechanism: Mechanism
    iterations: int


@dataclass(frozen=True, slots=True)
class NewCredential:
    """A credential to set. iterations: more make guessing passwords slower, and every login too."""

    user: str
    password: str = field(repr=False)
    mechanism: Mechanism = Mechanism.SCRAM_SHA_512
    iterations: int = ITERATIONS_MIN


class OldCredential(NamedTuple):
    """A credential to delete."""

    user: str
    mechanism: Mechanism


class AsyncUsers:
    """`AsyncAdmin.users`."""

    def __init__(self, cluster: AsyncCluster) -> None:
        self._cluster = cluster

    async def describe(self, names: Iterable[str] | None = None) -> Results[str, Sequence[Credential]]:
        """The credentials of these users (None: all that have any). A user without one fails with RESOURCE_NOT_FOUND."""
        wanted = None if names is None else [wire_describe.UserName(name=name) for name in names]

        async def ask() -> Results[str, Sequence[Credential]]:
            connection = await self._cluster.any()
            request = wire_describe.DescribeUserScramCredentialsRequest(users=wanted)
            answer = await connection.call(request, wire_describe.DescribeUserScramCredentialsResponse)
            if answer.error_code:
                raise ResourceError(answer.error_code, "describe", "users", answer.error_message)
            done: dict[str, Sequence[Credential]] = {}
            failed: dict[str, ClientError] = {}
            for row in answer.results:
                if row.error_code:
                    failed[row.user] = ResourceError(
                        row.error_code, "describe", f"user {row.user}", row.error_message
                    )
                    continue
                done[row.user] = [
                    Credential(_mechanism(info.mechanism), info.iterations) for info in row.credential_infos
                ]
            return Results(done, failed)

        return await self._cluster.retry(ask)

    async def alter(
        self, upsertions: Iterable[NewCredential] = (), deletions: Iterable[OldCredential] = ()
    ) -> Results[str, None]:
        """Set and delete credentials; one result for each user. The passwords do not leave this process."""
        new: dict[str, list[NewCredential]] = {}
        old: dict[str, list[OldCredential]] = {}
        for credential in upsertions:
            new.setdefault(credential.user, []).append(credential)
        for gone in deletions:
            old.setdefault(gone.user, []).append(gone)
        checked = {user: _check(items) for user, items in new.items()}
        refused: dict[str, ClientError] = {user: error for user, error in checked.items() if error}

        async def ask(connection: AsyncConnection, batch: Sequence[str]) -> Mapping[str, ClientError | None]:
            request = wire_alter.AlterUserScramCredentialsRequest(
                upsertions=[_upsertion(item) for user in batch for item in new.get(user, ())],
                deletions=[
                    wire_alter.ScramCredentialDeletion(name=user, mechanism=item.mechanism)
                    for user in batch
                    for item in old.get(user, ())
                ],
            )
            answer = await connection.call(request, wire_alter.AlterUserScramCredentialsResponse)
            return {
                row.user: ResourceError(
                    row.error_code, "change the credentials of", f"user {row.user}", row.error_message
                )
                if row.error_code
                else None
                for row in answer.results
            }

        users = [user for user in {**new, **old} if user not in refused]
        results = await spread(self._cluster, users, to_controller(self._cluster), ask)
        return Results(results.done, {**refused, **results.failed})


class Users(Family[AsyncUsers]):
    """`Admin.users`."""

    describe = blocking(AsyncUsers.describe)
    alter = blocking(AsyncUsers.alter)


def _mechanism(number: int) -> Mechanism:
    return Mechanism(number) if number in Mechanism._value2member_map_ else Mechanism.UNKNOWN


def _check(items: Sequence[NewCredential]) -> ClientError | None:
    """What is wrong with credentials before they are hashed: the broker sees neither the password nor its length."""
    for item in items:
        if not item.password or not ITERATIONS_MIN <= item.iterations <= ITERATIONS_MAX:
            reason = (
                f"{item.iterations} iterations are not from {ITERATIONS_MIN} to {ITERATIONS_MAX}"
                if item.password
                else "the password is empty"
            )
            return ResourceError(
                ErrorCode.UNACCEPTABLE_CREDENTIAL, "change the credentials of", f"user {item.user}", reason
            )
    return None


def _upsertion(item: NewCredential) -> wire_alter.ScramCredentialUpsertion:
    salt = os.urandom(SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(item.mechanism.digest, item.password.encode(), salt, item.iterations)
    return wire_alter.ScramCredentialUpsertion(
        name=item.user,
        mechanism=item.mechanism,
        iterations=item.iterations,
        salt=salt,
        salted_password=salted,
    )
