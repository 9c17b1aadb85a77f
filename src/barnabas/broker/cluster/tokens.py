"""Delegation tokens of the cluster: issued, renewed and ended through the tree, and checked at logins."""

from __future__ import annotations

import base64
import hmac
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from barnabas.config import broker_security as options
from barnabas.cores import tokens as core
from barnabas.cores.tokens import Lifetimes, Token
from barnabas.cores.znode_ops import Op
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.uuids import uuid_text

if TYPE_CHECKING:
    from barnabas.broker.cluster.controller import Controller
    from barnabas.config.loader import BrokerConfig
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.entropy import Entropy

log = logging.getLogger("barnabas.tokens")

HASH: Final = "sha512"


class Tokens:
    """See the module. Raises ApiError DELEGATION_TOKEN_AUTH_DISABLED when delegation.token.secret.key is not set."""

    def __init__(self, config: BrokerConfig, controller: Controller, clock: Clock, entropy: Entropy) -> None:
        self._secret = (config.get(options.DELEGATION_TOKEN_SECRET_KEY) or "").encode()
        self._lifetimes = Lifetimes(
            config.get(options.DELEGATION_TOKEN_EXPIRY_TIME_MS),
            config.get(options.DELEGATION_TOKEN_MAX_LIFETIME_MS),
        )
        self._controller, self._clock, self._entropy = controller, clock, entropy

    def require_secret(self) -> None:
        """Raises ApiError unless delegation.token.secret.key is set."""
        if not self._secret:
            raise ApiError(
                ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
                "delegation.token.secret.key is not set on this broker",
            )

    def hmac_of(self, token_id: str) -> bytes:
        """The HMAC by which a token is renewed or ended; its base64 form is the password for logins."""
        return hmac.digest(self._secret, token_id.encode(), HASH)

    def _with_hmac(self, wanted: bytes) -> Token | None:
        match = None
        for token in self._controller.image.tokens.values():
            if hmac.compare_digest(self.hmac_of(token.id), wanted):
                match = token
        return match

    async def create(self, owner: str, requester: str, renewers: tuple[str, ...], wanted_ms: int) -> Token:
        """Issue a token. Raises ApiError."""
        self.require_secret()
        token_id = uuid_text(self._entropy.uuid())
        now_ms = self._clock.now_ms()
        token = core.new_token(token_id, owner, requester, renewers, wanted_ms, now_ms, self._lifetimes)
        await self._change(token_id, lambda: token)
        log.info("delegation token issued", extra={"token": token_id, "owner": owner, "requester": requester})
        return token

    async def renew(self, principal: str, wanted: bytes, period_ms: int) -> int:
        """Extend a token; returns the new expiry time in ms. Raises ApiError."""
        self.require_secret()
        token_id = self._id_of(wanted)

        def altered() -> Token:
            known = self._controller.image.tokens.get(token_id)
            return core.renewed(known, principal, period_ms, self._clock.now_ms(), self._lifetimes)

        token = await self._change(token_id, altered)
        assert token is not None
        return token.expiry_ms

    async def expire(self, principal: str, wanted: bytes, period_ms: int) -> int:
        """Change when a token expires, or end it at once; returns the expiry time in ms. Raises ApiError."""
        self.require_secret()
        token_id, now_ms = self._id_of(wanted), self._clock.now_ms()

        def altered() -> Token | None:
            known = self._controller.image.tokens.get(token_id)
            return core.expired(known, principal, period_ms, self._clock.now_ms())

        token = await self._change(token_id, altered)
        if token is None:
            log.info("delegation token ended", extra={"token": token_id, "by": principal})
        return now_ms if token is None else token.expiry_ms

    def _id_of(self, wanted: bytes) -> str:
        token = self._with_hmac(wanted)
        return "" if token is None else token.id

    async def _change(self, token_id: str, altered: Callable[[], Token | None]) -> Token | None:
        result: Token | None = None

        def decide() -> Iterable[Op]:
            nonlocal result
            result = altered()
            return core.decide_token(token_id, self._controller.image.token_versions.get(token_id), result)

        await self._controller.options.change(decide)
        return result

    async def remove_expired(self) -> None:
        """As controller, remove tokens that have expired. Raises ApiError."""
        if not self._controller.in_office:
            return
        now_ms = self._clock.now_ms()
        for token in [t for t in self._controller.image.tokens.values() if t.has_expired(now_ms)]:
            await self._change(token.id, lambda: None)
            log.info("delegation token expired", extra={"token": token.id, "owner": token.owner})

    def password(self, token_id: str) -> tuple[Token, str] | None:
        """A token that is valid for logins, and its password; None if there is none with this id."""
        token = self._controller.image.tokens.get(token_id) if self._secret else None
        if token is None or token.has_expired(self._clock.now_ms()):
            return None
        return token, base64.b64encode(self.hmac_of(token_id)).decode()
