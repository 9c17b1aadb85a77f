"""The client's side of SASL, without sockets: how a broker logs in to another broker.

`first` is the token that begins a login; `answer` takes the other side's token and returns the next one, or None at the end.
Both are coroutines, because a mechanism may have to ask another server for tickets (client_gssapi.py).
"""

from __future__ import annotations

import base64
import json
from typing import Any, Final, Protocol

from barnabas.config.option import ConfigError
from barnabas.extras import how_to_install
from barnabas.security.sasl.scram import HASHES

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"
MECHANISMS: Final = (PLAIN, *HASHES, OAUTHBEARER, GSSAPI)


class LoginRefused(Exception):
    """The other side refuses the login, or does not prove that it knows the password; the message says which."""


class ClientLogin(Protocol):
    """One login by one mechanism."""

    mechanism: str
    user: str

    async def first(self) -> bytes:
        """The token that begins the login. Raises LoginRefused."""

    async def answer(self, token: bytes) -> bytes | None:
        """The token that answers the server's; None when the login is complete. Raises LoginRefused."""


class PlainLogin:
    """See ClientLogin."""

    mechanism = PLAIN

    def __init__(self, user: str, password: str) -> None:
        self.user = user
        self._password = password

    async def first(self) -> bytes:
        return f"\0{self.user}\0{self._password}".encode()

    async def answer(self, token: bytes) -> bytes | None:
        return None


class ScramLogin:
    """See ClientLogin."""

    def __init__(self, mechanism: str, user: str, password: str) -> None:
        """Raises ConfigError if the library is missing."""
        try:
            from scramp import ScramClient
        except ImportError:
            raise ConfigError(f"{mechanism} needs {how_to_install('security')}") from None
        self.mechanism = mechanism
        self.user = user
        self._client: Any = ScramClient([mechanism], user, password)
        self._is_proven = False

    async def first(self) -> bytes:
        message: str = self._client.get_client_first()
        return message.encode()

    async def answer(self, token: bytes) -> bytes | None:
        from scramp import ScramException

        try:
            text = token.decode("utf-8")
            if self._is_proven:
                self._client.set_server_final(text)
                return None
            self._client.set_server_first(text)
            self._is_proven = True
            proof: str = self._client.get_client_final()
        except (ScramException, ValueError) as error:
            raise LoginRefused(
                f"a broker's answer does not prove that it knows the password: {error}"
            ) from None
        return proof.encode()


class BearerLogin:
    """See ClientLogin. Sends a signed token in place of user and password; its user is read for messages only."""

    mechanism = OAUTHBEARER

    def __init__(self, token: str) -> None:
        """Raises ConfigError for a text that is not a signed token."""
        self._token = token
        try:
            payload = token.split(".")[1]
            claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
            self.user = str(claims.get("sub", ""))
            self._message = f"n,,\x01auth=Bearer {token}\x01\x01".encode("ascii")
        except (IndexError, ValueError, AttributeError):
            raise ConfigError("this is not a signed token (JWT)") from None

    async def first(self) -> bytes:
        return self._message

    async def answer(self, token: bytes) -> bytes | None:
        if token:
            refusal = token[:200].decode("utf-8", "replace")
            raise LoginRefused(f"a broker refuses the token of {self.user!r}: {refusal}")
        return None


def new_login(mechanism: str, user: str, password: str) -> ClientLogin:
    """A login with user and password. Raises ConfigError."""
    return PlainLogin(user, password) if mechanism == PLAIN else ScramLogin(mechanism, user, password)
