"""The client's side of GSSAPI: how a broker sends its ticket to another broker.

The library gets tickets with the broker's own keytab, and keeps them in memory until they expire. It may have to ask
the Kerberos server, so it is called in separate threads: a server that does not answer delays logins and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from barnabas.security.sasl.client import GSSAPI, LoginRefused
from barnabas.security.sasl.gssapi import CHOICE_BYTES, NO_LAYER, library, library_for, reason_of

THREADS: Final = 4
TICKETS: Final = "MEMORY:barnabas-"


class Initiator:
    """A principal with its keytab, and the service whose brokers it logs in to. Raises ConfigError."""

    def __init__(self, principal: str, keytab: str, service: str) -> None:
        library_for(keytab)
        self.made_of = (principal, keytab, service)
        self.principal = principal
        self._keytab = keytab
        self._service = service
        self._threads = ThreadPoolExecutor(THREADS, "kerberos")

    def login(self, host: str) -> GssapiLogin:
        """A login to the broker with this host name."""
        return GssapiLogin(self, host)

    def context(self, host: str) -> Any:
        """A new security context for a login to a host. Blocks, so call it in a thread. Raises GSSError."""
        gssapi = library()
        kerberos = gssapi.MechType.kerberos
        own = gssapi.Name(self.principal, gssapi.NameType.kerberos_principal)
        store = {"client_keytab": f"FILE:{self._keytab}", "ccache": TICKETS + self.principal}
        # New for each login, so that the library checks whether its tickets are still valid.
        credentials = gssapi.Credentials(name=own, usage="initiate", mechs=[kerberos], store=store)
        target = gssapi.Name(f"{self._service}@{host}", gssapi.NameType.hostbased_service)
        flags = [gssapi.RequirementFlag.mutual_authentication, gssapi.RequirementFlag.integrity]
        return gssapi.SecurityContext(
            name=target, creds=credentials, usage="initiate", mech=kerberos, flags=flags
        )

    async def run(self, work: Callable[[], bytes], host: str) -> bytes:
        """Run `work`, which calls the library and returns a token, in a thread. Raises LoginRefused."""
        errors = library().exceptions.GSSError
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except errors as error:
            raise LoginRefused(
                f"the Kerberos login of {self.principal} to {self._service}@{host} failed: {reason_of(error)}"
            ) from None


class GssapiLogin:
    """See ClientLogin."""

    mechanism = GSSAPI

    def __init__(self, initiator: Initiator, host: str) -> None:
        self.user = initiator.principal
        self._initiator = initiator
        self._host = host
        self._context: Any = None
        self._has_chosen = False

    async def first(self) -> bytes:
        def begin() -> bytes:
            self._context = self._initiator.context(self._host)
            return self._context.step(None) or b""

        return await self._initiator.run(begin, self._host)

    async def answer(self, token: bytes) -> bytes | None:
        if self._has_chosen:
            return None
        if not self._context.complete:
            # The library returns no token when it needs nothing more; the broker continues after an empty one.
            return await self._initiator.run(lambda: self._context.step(token) or b"", self._host)
        self._has_chosen = True
        return await self._initiator.run(lambda: self._choose(token), self._host)

    def _choose(self, token: bytes) -> bytes:
        """The answer to the security layers that the broker offers, which chooses to use none."""
        offer: bytes = self._context.unwrap(token).message
        if len(offer) < CHOICE_BYTES or not offer[0] & NO_LAYER:
            raise LoginRefused("a broker demands a security layer, but Kafka has none")
        choice: bytes = self._context.wrap(bytes((NO_LAYER, 0, 0, 0)), False).message
        return choice
