"""GSSAPI (RFC 4752): Kerberos tickets for the broker's own principal, whose key is in a keytab.

The client sends its ticket; then both sides agree to use no security layer, because Kafka has none: TLS protects the
connection. The ticket alone determines the user: as in Kafka, the client's authorization id is ignored.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Any, Final

from barnabas.config.option import ConfigError
from barnabas.extras import how_to_install
from barnabas.security.kerberos_names import KerberosName, NoUserName, Rule, parse_name, user_of
from barnabas.security.sasl import Outcome, SaslError, jaas

log = logging.getLogger("barnabas.login")

GSSAPI: Final = "GSSAPI"
MODULE: Final = "Krb5LoginModule"
REFUSED: Final = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"
)
TOKEN_BYTES_MAX: Final = 1 << 17
"""Tickets with the groups of a large directory have up to 64 KB."""
NO_LAYER: Final = 1
"""The security layer that is offered: none."""
OFFER: Final = bytes((NO_LAYER, 0, 0, 0))
CHOICE_BYTES: Final = 4
CONFIG_PROPERTY: Final = "java.security.krb5.conf"
CONFIG_VARIABLE: Final = "KRB5_CONFIG"


class Acceptor:
    """The broker's own credentials: a principal with its key in a keytab. Raises ConfigError if they are missing."""

    def __init__(self, principal: str, keytab: str) -> None:
        gssapi = library_for(keytab)
        try:
            kerberos = gssapi.MechType.kerberos
            name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
            self.name = parse_name(str(name.canonicalize(kerberos)))
            self.credentials = gssapi.Credentials(
                name=name, usage="accept", mechs=[kerberos], store={"keytab": f"FILE:{keytab}"}
            )
        except (gssapi.exceptions.GSSError, ValueError) as error:
            raise ConfigError(
                f"Kerberos has no credentials for {principal} in {keytab}: {reason_of(error)}"
            ) from None

    def begin(self) -> Any:
        """The context of one login."""
        return library().SecurityContext(usage="accept", creds=self.credentials)


def library() -> Any:
    """The module `gssapi`. Raises ConfigError if it, or Kerberos' own library, is missing."""
    try:
        return importlib.import_module("gssapi")
    except ImportError as error:
        # The import also fails if the package is installed, but Kerberos' own library is not.
        raise ConfigError(f"GSSAPI needs {how_to_install('kerberos')} ({error})") from None


def library_for(keytab: str) -> Any:
    """The library, with KRB5_CONFIG set if KAFKA_OPTS names a file. Raises ConfigError, also for a missing keytab."""
    gssapi = library()
    file = jaas.property_named(CONFIG_PROPERTY)
    if file is not None:
        os.environ.setdefault(CONFIG_VARIABLE, file)
    if not os.access(keytab, os.R_OK):
        raise ConfigError(f"the keytab {keytab} cannot be read")
    return gssapi


def key_of(entry: jaas.Entry) -> tuple[str, str] | None:
    """Principal and keytab of a Krb5LoginModule's entry; None if it does not name both."""
    principal, keytab = entry.get("principal"), entry.get("keyTab", "").removeprefix("FILE:")
    return (principal, keytab) if principal and keytab else None


def reason_of(error: Exception) -> str:
    """The reason that Kerberos gives for an error, in one line."""
    text = " ".join(str(error).split())
    _, _, detail = text.partition("Minor (")
    return detail.partition("): ")[2] or text


class Gssapi:
    """See Exchange. Steps run in threads, because the library reads the keytab and writes a replay cache."""

    def __init__(self, acceptor: Acceptor, rules: tuple[Rule, ...]) -> None:
        self.claimed = ""
        self._rules = rules
        self._realm = acceptor.name.realm
        self._context = acceptor.begin()
        self._next: Callable[[bytes], Outcome] = self._accept

    def step(self, token: bytes) -> Outcome | Awaitable[Outcome]:
        return self.stepped(token)

    async def stepped(self, token: bytes) -> Outcome:
        if len(token) > TOKEN_BYTES_MAX:
            raise SaslError(REFUSED)
        errors = library().exceptions.GSSError
        try:
            return await asyncio.get_running_loop().run_in_executor(None, self._next, token)
        except errors as error:
            log.info("a ticket is refused", extra={"reason": reason_of(error), "user": self.claimed})
            raise SaslError(REFUSED) from None

    def _accept(self, token: bytes) -> Outcome:
        """Process the client's ticket, and further tokens of the Kerberos library."""
        reply: bytes | None = self._context.step(token)
        if not self._context.complete:
            return Outcome(reply or b"")
        self.claimed = str(self._context.initiator_name)
        if not reply:
            return self._offer(b"")
        self._next = self._offer
        return Outcome(reply)

    def _offer(self, token: bytes) -> Outcome:
        """The exchange of tickets is over: offer the only choice of security layer, which is none."""
        if token:
            raise SaslError("Invalid GSSAPI response: nothing was expected after the ticket")
        self._next = self._choose
        return Outcome(self._context.wrap(OFFER, False).message)

    def _choose(self, token: bytes) -> Outcome:
        """Process the security layer that the client has chosen; its authorization id is ignored."""
        choice: bytes = self._context.unwrap(token).message
        if len(choice) < CHOICE_BYTES or choice[0] != NO_LAYER:
            raise SaslError("Invalid GSSAPI response: the client wants a security layer, and none is offered")
        return Outcome(b"", self._user(), is_last_word=False)

    def _user(self) -> str:
        try:
            name: KerberosName = parse_name(self.claimed)
            return user_of(self._rules, name, self._realm)
        except (ValueError, NoUserName) as error:
            log.info("a ticket is refused", extra={"reason": str(error), "user": self.claimed})
            raise SaslError(REFUSED) from None
