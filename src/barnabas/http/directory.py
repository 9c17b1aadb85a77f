"""Users of an LDAP directory: a password is right if the directory accepts a bind with it.

The library is ldap3. Nothing else is asked of the directory, so no account of the service's own is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
import re
import ssl
import time
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import urlsplit

from barnabas.http.errors import HttpError
from barnabas.security.openness import is_loopback

log = logging.getLogger("barnabas.http")

ANSWER_S: Final = 5
"""How long the directory may take to accept a connection, and to answer."""
THREADS: Final = 4
WAITING_MAX: Final = 64
KEPT_S: Final = 60.0
"""So long a password that was right is not asked again: requests of programs come many a second."""
KEPT_MAX: Final = 10_000
USER: Final = "{user}"
REFUSED: Final = (19, 32, 34, 49, 53)
"""LDAP's results for a login that is wrong (RFC 4511): noSuchObject, invalidDNSyntax, invalidCredentials; and
constraintViolation and unwillingToPerform, with which some directories answer for accounts that are locked."""
NAME_MAX: Final = 250


class BadDirectory(Exception):
    """An option that names the directory or its users is wrong. The text says which one, and what it has to be."""


class DirectoryAway(Exception):
    """The directory does not answer, or not as one does. The text says why."""


def one_name(login: str, *, ascii_only: bool) -> str | None:
    """The one name that Barnabas knows a user by; None for what is no name.

    Directories do not tell `Anna` from `anna`, from ` anna`, or from the same in wide letters (RFC 4518), but roles and
    rules do: under a name that none of their lines fits, a user would have the rights of strangers. ascii_only: for Active
    Directory, which does not tell `ä` from `a` either.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", login).casefold())
    name = re.sub(" +", " ", folded.strip(" "))
    if not 0 < len(name) <= NAME_MAX or not name.isprintable() or (ascii_only and not name.isascii()):
        return None
    return name


class Directory:
    """One directory. url: ldaps://HOST[:PORT], or ldap://HOST[:PORT], which becomes TLS by StartTLS except on this machine.

    template: the name that a user has there, with {user} for the name of the login: a distinguished name
    (`uid={user},ou=people,dc=example,dc=com`), or `{user}@example.com` for Active Directory. Raises
    BadDirectory, ImportError.
    """

    def __init__(self, url: str, template: str, option: str = "--ldap") -> None:
        import ldap3  # type: ignore[import-untyped]

        self._ldap3: Any = ldap3
        self._url, self._template = url, template
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if (
            not host
            or parts.scheme not in ("ldap", "ldaps")
            or parts.path.strip("/")
            or parts.username is not None
        ):
            raise BadDirectory(f"{option} {url!r} is not an address like ldaps://directory.example.com")
        if template.count(USER) != 1:
            raise BadDirectory(
                f"{option}-user {template!r} has no {USER} in it; example: uid={USER},ou=people,dc=example,dc=com"
            )
        self._starts_tls = parts.scheme == "ldap" and not is_loopback(host)
        self._where = {
            "host": host,
            "port": port or (636 if parts.scheme == "ldaps" else 389),
            "use_ssl": parts.scheme == "ldaps",
        }
        self._threads = ThreadPoolExecutor(THREADS, "directory")
        self._waiting = 0
        self._secret = os.urandom(32)
        self._right: dict[bytes, float] = {}

    async def user_of(self, login: str, password: str) -> str | None:
        """The user, if the directory accepts the password; see `one_name`. Raises HttpError 503 when it does not answer."""
        user, password = one_name(login, ascii_only="=" not in self._template), self._prepared(password)
        if user is None or not password:
            return None
        digest = hmac.digest(self._secret, f"{user}\0{password}".encode(), "sha256")
        if time.monotonic() < self._right.get(digest, 0):
            return user
        if self._waiting >= WAITING_MAX:
            raise HttpError(503, "too many logins wait for the directory of users; try again")
        self._waiting += 1
        try:
            is_right = await asyncio.get_running_loop().run_in_executor(
                self._threads, self._bind, user, password
            )
        except DirectoryAway as error:
            log.warning(
                "the directory of users does not answer", extra={"url": self._url, "reason": str(error)}
            )
            raise HttpError(503, "the directory of users does not answer; try again later") from None
        finally:
            self._waiting -= 1
        if is_right:
            if len(self._right) >= KEPT_MAX:
                self._right.clear()
            self._right[digest] = time.monotonic() + KEPT_S
        return user if is_right else None

    def _prepared(self, password: str) -> str:
        """The password in the form that is sent (SASLprep, RFC 4013); empty for what is none, such as invisible characters.

        That must not be sent: many directories take a bind without a password for one as nobody, and accept it whatever the
        name is (RFC 4513, 5.1.2).
        """
        try:
            return str(self._ldap3.protocol.sasl.sasl.sasl_prep(password))
        except self._ldap3.core.exceptions.LDAPException:
            return ""

    def _server(self) -> Any:
        """A new one for each login: the library does not soon try an address again that has refused once."""
        ldap3 = self._ldap3
        tls = ldap3.Tls(validate=ssl.CERT_REQUIRED, ca_certs_file=os.environ.get("SSL_CERT_FILE"))
        return ldap3.Server(**self._where, tls=tls, get_info=ldap3.NONE, connect_timeout=ANSWER_S)

    def _bind(self, user: str, password: str) -> bool:
        ldap3 = self._ldap3
        name = ldap3.utils.dn.escape_rdn(user) if "=" in self._template else user
        connection = None
        try:
            connection = ldap3.Connection(
                self._server(), user=self._template.replace(USER, name), password=password, authentication=ldap3.SIMPLE,
                receive_timeout=ANSWER_S, raise_exceptions=False, auto_referrals=False,
            )  # fmt: skip
            if self._starts_tls and not connection.start_tls():
                raise DirectoryAway(f"it refuses StartTLS: {connection.result['description']}")
            if connection.bind():
                return True
            if connection.result["result"] in REFUSED:
                return False
            raise DirectoryAway(f"it answers {connection.result['description']}")
        except (ldap3.core.exceptions.LDAPException, OSError) as error:
            raise DirectoryAway(str(error)) from None
        finally:
            if connection is not None:
                with contextlib.suppress(ldap3.core.exceptions.LDAPException, OSError):
                    connection.unbind()
