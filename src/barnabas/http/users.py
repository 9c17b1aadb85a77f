"""Authenticates requests by user and password (Basic), with a file of SCRAM credentials, or by signed tokens (Bearer).

The file is the one that `barnabas security init` writes and brokers read as scram.users.file, so that users have one
password for both. It contains no passwords, and is read again when it changes. Tokens are checked as brokers do.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import os
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from starlette.types import Scope

from barnabas.http.directory import Directory
from barnabas.http.errors import HttpError
from barnabas.http.guard import OPEN_PATHS
from barnabas.security.folder import FolderError, read_users
from barnabas.security.sasl import Outcome, SaslError
from barnabas.security.sasl.oauthbearer import Keys, OAuthBearer, Rules
from barnabas.security.sasl.scram import (
    HASHES,
    Credential,
    CredentialForm,
    credential_of,
    decode_credential,
    draw,
    shape_of,
    stand_in,
)

log = logging.getLogger("barnabas.http")

LOOK_S: Final = 1.0
"""The least time between two checks whether the file has changed."""
KEPT_MAX: Final = 10_000
REFUSED_S: Final = 0.1
"""The least time that a refusal takes, so that guessing passwords is slow."""
MECHANISM: Final = "SCRAM-SHA-512"
JWKS_REFRESH_MS: Final = 3_600_000
JWKS_RETRY_MS: Final = 10_000


class Known(NamedTuple):
    """The contents of the file. right: by user, a keyed digest of the correct password; checking it is quicker than deriving
    keys again.

    shapes: by mechanism, the forms of the users' credentials. Users who do not exist get credentials of these forms, so that
    checking their passwords takes as long.
    """

    users: Mapping[str, Mapping[str, str]]
    right: dict[str, bytes]
    shapes: Mapping[str, Mapping[CredentialForm, int]]

    @classmethod
    def read(cls, path: Path) -> Known:
        """Read the file. Raises FolderError."""
        users = read_users(path)
        shapes: dict[str, Counter[CredentialForm]] = {}
        for texts in users.values():
            mechanism = _mechanism(texts)
            shape = None if mechanism is None else shape_of(texts[mechanism])
            if mechanism is not None and shape is not None:
                shapes.setdefault(mechanism, Counter())[shape] += 1
        return cls(users, {}, shapes)

    def credential(self, user: str) -> tuple[str, Credential] | None:
        """(mechanism, credential) of a user; None for a user who does not exist."""
        texts = self.users.get(user, {})
        mechanism = _mechanism(texts)
        credential = None if mechanism is None else decode_credential(texts[mechanism])
        return None if mechanism is None or credential is None else (mechanism, credential)

    def stand_in(self, user: str, secret: bytes) -> tuple[str, Credential]:
        """(mechanism, credential) for a user who does not exist: both are drawn from those of the existing users."""
        counts = {mechanism: sum(shapes.values()) for mechanism, shapes in self.shapes.items()}
        seed = hmac.digest(secret, user.encode(), "sha256")
        mechanism = draw(seed, counts, str.encode) or MECHANISM
        return mechanism, stand_in(mechanism, user, secret, self.shapes.get(mechanism, {}))


class UserFile:
    """The users in a file. Raises FolderError if it cannot be read; if that happens later, the old users remain."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._secret = os.urandom(32)
        self._looked_s = time.monotonic()
        self._seen = self._stamp()
        self._known = Known.read(path)

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def refresh(self) -> None:
        """Read the file again if it has changed."""
        now_s = time.monotonic()
        if now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        stamp = self._stamp()
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            self._known = Known.read(self._path)
        except FolderError as error:
            log.error(
                "the changed users cannot be read; the previous ones remain", extra={"reason": str(error)}
            )

    def knows(self, user: str, password: str) -> bool:
        """Whether `check` has accepted this password before. Derives no keys."""
        right = self._known.right.get(user)
        return right is not None and hmac.compare_digest(right, self._digest(password))

    def check(self, user: str, password: str) -> bool:
        """Whether the password is right. Derives keys for milliseconds, also for unknown users: call it in a thread."""
        users = self._known  # what is found right is stored with the users that were read from the same file
        known = users.credential(user)
        mechanism, credential = known or users.stand_in(user, self._secret)
        salted = hashlib.pbkdf2_hmac(
            HASHES[mechanism], password.encode(), credential.salt, credential.iterations
        )
        computed = credential_of(mechanism, credential.salt, salted, credential.iterations)
        if not hmac.compare_digest(computed.stored_key, credential.stored_key) or known is None:
            return False
        if len(users.right) >= KEPT_MAX:
            users.right.clear()
        users.right[user] = self._digest(password)
        return True

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._secret, password.encode(), "sha256")


def _mechanism(texts: Mapping[str, str]) -> str | None:
    """The mechanism of the credential that is checked; None if there is none."""
    return MECHANISM if MECHANISM in texts else next(iter(texts), None)


class Tokens:
    """Checks signed tokens of one issuer. Raises ConfigError for an unsupported URL or a missing library."""

    def __init__(self, jwks: str, issuer: str | None, audience: str | None) -> None:
        self._keys = Keys(jwks, JWKS_REFRESH_MS, JWKS_RETRY_MS, lambda: time.monotonic() * 1000)
        self._rules = Rules(
            audience=(audience,) if audience else (),
            issuer=issuer,
            user_claim="sub",
            scope_claim="scope",
            skew_s=30,
        )

    async def user_of(self, token: str) -> str | None:
        """The user that a token names; None for an invalid token."""
        exchange = OAuthBearer(self._rules, self._keys, lambda: time.time_ns() // 1_000_000)
        try:
            outcome = exchange.step(b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01")
            return (outcome if isinstance(outcome, Outcome) else await outcome).user
        except SaslError:
            return None


class Users:
    """Authenticates requests, as HttpOptions.authenticate. At least one of file, tokens and directory is given.

    inside: user and password for other services of this process, generated when it starts and never stored.
    """

    def __init__(
        self,
        file: UserFile | None,
        tokens: Tokens | None,
        inside: tuple[str, str] | None = None,
        directory: Directory | None = None,
    ) -> None:
        self._file = file
        self._directory = directory
        self._tokens = tokens
        self._inside = None if inside is None else f"{inside[0]}:{inside[1]}".encode()
        has_passwords = file is not None or directory is not None
        ways = (["a user and password"] if has_passwords else []) + (["a token"] if tokens else [])
        self._how_to_log_in = f"log in with {' or '.join(ways)}"
        schemes = (['Basic realm="barnabas", charset="UTF-8"'] if has_passwords else []) + (
            ["Bearer"] if tokens else []
        )
        self._challenge = ", ".join(schemes)

    async def __call__(self, scope: Scope) -> str | None:
        """See Authenticate."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if scope["path"] in OPEN_PATHS or _is_preflight(scope, headers):
            return None
        scheme, _, text = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        user = None
        if scheme.lower() == "basic":
            user = await self._basic(text.strip())
        elif scheme.lower() == "bearer" and self._tokens is not None:
            user = await self._tokens.user_of(text.strip())
        if user is None:
            why = self._how_to_log_in if not scheme else "the login is refused"
            if scheme:
                client = scope.get("client")
                log.warning(
                    "login refused",
                    extra={"client": f"{client[0]}:{client[1]}" if client else "-", "scheme": scheme[:16]},
                )
                await asyncio.sleep(REFUSED_S)
            raise HttpError(401, why, headers={"www-authenticate": self._challenge})
        return user

    async def _basic(self, text: str) -> str | None:
        try:
            login = base64.b64decode(text, validate=True)
            user, colon, password = login.decode().partition(":")
        except (binascii.Error, ValueError):
            return None
        if self._inside is not None and hmac.compare_digest(login, self._inside):
            return user
        if not colon or not user:
            return None
        if self._file is not None and await self._is_in_file(self._file, user, password):
            return user
        return None if self._directory is None else await self._directory.user_of(user, password)

    async def _is_in_file(self, file: UserFile, user: str, password: str) -> bool:
        file.refresh()
        return file.knows(user, password) or await asyncio.to_thread(file.check, user, password)


def _is_preflight(scope: Scope, headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser asks if a page may send requests here (CORS); such requests have no login."""
    return scope["method"] == "OPTIONS" and b"access-control-request-method" in headers
