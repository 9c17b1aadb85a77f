"""SCRAM credentials of users, for kafka-configs: the password itself never leaves this program."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from barnabas.admin import Admin, Mechanism, NewCredential, OldCredential
from barnabas.client.errors import UnsupportedByBroker
from barnabas.kafka_tools.shared.common import ToolError
from barnabas.wire.errors import ErrorCode

MECHANISMS: Final = {
    "SCRAM-SHA-256": Mechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": Mechanism.SCRAM_SHA_512,
}
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
SALT_BYTES: Final = 32
FIELD: Final = re.compile(r"(iterations|password)=([^,]*)")


def write(admin: Admin, user: str, add: Mapping[str, str], remove: Sequence[str]) -> None:
    """Set credentials (`iterations=8192,password=secret` by mechanism) and remove others.

    Raises ToolError, ResourceError.
    """
    fresh = []
    for name, text in add.items():
        iterations, password = parse_fields(name, text)
        fresh.append(NewCredential(user, password, MECHANISMS[name], iterations))
    admin.users.alter(fresh, [OldCredential(user, MECHANISMS[name]) for name in remove]).require()


def parse_fields(name: str, text: str) -> tuple[int, str]:
    """(iterations, password) of `iterations=8192,password=secret`. Raises ToolError."""
    fields = dict(FIELD.findall(text))
    iterations = int(fields["iterations"]) if fields.get("iterations", "").isdigit() else ITERATIONS_MIN
    if not fields.get("password"):
        raise ToolError(f"{name} needs a password: {name}=[iterations=8192,password=secret]")
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ToolError(f"Iterations must be from {ITERATIONS_MIN} to {ITERATIONS_MAX} for {name}")
    return iterations, fields["password"]


def show(admin: Admin, user: str | None) -> None:
    """Print which credentials users have; nothing where the broker keeps none. Raises ResourceError."""
    try:
        results = admin.users.describe(None if user is None else [user])
    except UnsupportedByBroker:
        return
    for name, credentials in results.except_for(ErrorCode.RESOURCE_NOT_FOUND).require().items():
        shown = ", ".join(
            f"{credential.mechanism.label}=iterations={credential.iterations}" for credential in credentials
        )
        print(f"SCRAM credential configs for user-principal '{name}' are {shown}")
