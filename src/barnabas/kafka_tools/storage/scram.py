"""kafka-storage format --add-scram: the first users of a cluster, before any broker runs.

    --add-scram 'SCRAM-SHA-256=[name=admin,password=admin-secret]'
    --add-scram 'SCRAM-SHA-512=[name=admin,iterations=8192,salt="MWx2...",saltedpassword="mT0y..."]'

The credentials wait in a file of the first log dir, which the broker adds to its cluster when it starts, and removes.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from barnabas.kafka_tools.shared.common import ToolError
from barnabas.security.folder import FIRST_USERS, FORBIDDEN, users_text
from barnabas.security.sasl.scram import (
    HASHES,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES,
    Credential,
    credential_of,
    encode_credential,
    new_credential,
)

CREDENTIAL: Final = re.compile(r"(?P<mechanism>[^=\s]+)=\[(?P<fields>.*)\]", re.DOTALL)
FIELD: Final = re.compile(r'\s*(\w+)=(?:"([^"]*)"|([^,"]*))\s*(?:,|$)')
FIELDS: Final = frozenset({"name", "password", "saltedpassword", "salt", "iterations"})


def parse_credentials(texts: Sequence[str]) -> dict[str, dict[str, str]]:
    """The credentials' texts by user and mechanism. Raises ToolError, which repeats no password."""
    credentials: dict[str, dict[str, str]] = {}
    for text in texts:
        match = CREDENTIAL.fullmatch(text.strip())
        if match is None:
            raise ToolError("--add-scram is not MECHANISM=[name=USER,password=PASSWORD]")
        mechanism = match["mechanism"]
        if mechanism not in HASHES:
            raise ToolError(f"--add-scram: {mechanism} is none of {', '.join(HASHES)}")
        fields = _fields(match["fields"])
        user = fields.get("name", "")
        if not user or FORBIDDEN & set(user):
            raise ToolError(
                "--add-scram needs a name without spaces, quotes, slashes, colons or equals signs"
            )
        if mechanism in credentials.setdefault(user, {}):
            raise ToolError(f"--add-scram names {mechanism} of {user} twice")
        credentials[user][mechanism] = encode_credential(_credential(mechanism, fields))
    return credentials


def _fields(text: str) -> dict[str, str]:
    by_name: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = FIELD.match(text, at)
        if match is None or match[1] not in FIELDS or match[1] in by_name:
            raise ToolError(f"--add-scram takes {', '.join(sorted(FIELDS))} between its brackets, each once")
        by_name[match[1]] = match[3] if match[2] is None else match[2]
        at = match.end()
    return by_name


def _credential(mechanism: str, fields: dict[str, str]) -> Credential:
    iterations = fields.get("iterations", str(ITERATIONS_MIN))
    if not iterations.isascii() or not iterations.isdigit():
        raise ToolError(f"--add-scram: iterations={iterations} is no number")
    if not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
        raise ToolError(f"--add-scram: iterations must be from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    if ("password" in fields) == ("saltedpassword" in fields):
        raise ToolError("--add-scram needs either a password or a saltedpassword")
    salt = _decoded("salt", fields["salt"]) if "salt" in fields else os.urandom(SALT_BYTES)
    if fields.get("password"):
        return new_credential(mechanism, fields["password"], salt, int(iterations))
    if "salt" not in fields or not fields.get("saltedpassword"):
        raise ToolError("--add-scram: a saltedpassword needs the salt that it was made with")
    return credential_of(
        mechanism, salt, _decoded("saltedpassword", fields["saltedpassword"]), int(iterations)
    )


def _decoded(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ToolError(f"--add-scram: {name} is not base64") from None


def write(folder: Path, users: dict[str, dict[str, str]]) -> None:
    """Leave the credentials for the broker that will start over a log dir."""
    fd = os.open(folder / FIRST_USERS, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(users_text(users))
