"""The mechanisms of one SASL listener, and where each finds its users, according to the current options."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from barnabas.config import broker_security as options
from barnabas.config.option import ConfigError
from barnabas.cores.znode_layout import sanitize
from barnabas.security import kerberos_names
from barnabas.security.listener_options import ListenerOptions
from barnabas.security.sasl import Exchange, jaas
from barnabas.security.sasl.gssapi import GSSAPI, MODULE, Acceptor, Gssapi, key_of
from barnabas.security.sasl.oauthbearer import UNSECURED, Keys, OAuthBearer, Rules
from barnabas.security.sasl.plain import Check, Plain, check_named, check_of
from barnabas.security.sasl.scram import (
    HASHES,
    CredentialForm,
    Known,
    Scram,
    decode_credential,
    new_credential,
    shape_of,
    stand_in,
)

if TYPE_CHECKING:
    from barnabas.config.loader import BrokerConfig
    from barnabas.config.option import Option
    from barnabas.cores.tokens import Token

T = TypeVar("T")

log = logging.getLogger("barnabas.login")

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
SPARE_MS: Final = 30_000
MECHANISMS: Final = (PLAIN, *HASHES, OAUTHBEARER, GSSAPI)


class Now(Protocol):
    """Wall-clock and monotonic time."""

    def now_ms(self) -> int: ...

    def monotonic_ms(self) -> float: ...


class Spare(NamedTuple):
    """What stands in for the credentials of users who do not exist.

    shapes: how many users have each shape. text: a real credential, so that decoding takes as much work as for a user.
    """

    shapes: Mapping[CredentialForm, int]
    text: str
    since_ms: float


class SaslListener:
    """See the module. users: the configs of the cluster, by (kind, name), among them users' SCRAM credentials."""

    def __init__(
        self,
        config: BrokerConfig,
        listener: str,
        users: Callable[[], Mapping[tuple[str, str], Mapping[str, str]]],
        secret: Callable[[], bytes],
        clock: Now,
        token: Callable[[str], tuple[Token, str] | None] = lambda token_id: None,
    ) -> None:
        """secret: used to compute the salts of tokens and of users who do not exist. It must be the same on all brokers of
        the cluster, since different salts would reveal who exists, and known to nobody else. token: (id) -> the token and
        its password.

        Raises ConfigError.
        """
        self.options = ListenerOptions(config, listener)
        self._users, self._secret, self._clock, self._token = users, secret, clock, token
        self._jaas_file = jaas.file_named()
        self._contexts: dict[str, tuple[object, Any]] = {}
        """What `_once` has made, by purpose: (the option texts that it was made of, the object)."""
        self._spares: dict[str, Spare] = {}
        self._deriving = asyncio.Semaphore()
        self._counting = asyncio.Semaphore()
        for mechanism in self.mechanisms:
            self.begin(mechanism)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The mechanisms that clients may use now. Raises ConfigError if there are none, or one is unknown."""
        option = options.SASL_ENABLED_MECHANISMS
        wanted = tuple(name.upper() for name in self.options.get(option))
        unknown = [name for name in wanted if name not in MECHANISMS]
        if unknown or not wanted:
            raise ConfigError(
                f"{self.options.name_of(option)}={','.join(wanted)}: this broker offers {', '.join(MECHANISMS)}"
            )
        return wanted

    def begin(self, mechanism: str) -> Exchange:
        """A new login. Raises ConfigError if the mechanism's own options are missing or wrong."""
        if mechanism == PLAIN:
            return Plain(self._plain_check())
        if mechanism == OAUTHBEARER:
            return OAuthBearer(*self._token_rules(), self._clock.now_ms)
        if mechanism == GSSAPI:
            return Gssapi(*self._kerberos())
        return Scram(
            mechanism,
            lambda user, is_token: (self._token_known if is_token else self._known)(mechanism, user),
        )

    def reauthentication_ms(self, mechanism: str) -> int:
        """connections.max.reauth.ms; 0 if clients need not log in again."""
        return self.options.get(options.CONNECTIONS_MAX_REAUTH_MS, mechanism)

    @property
    def frame_bytes_max(self) -> int:
        """The largest request that is accepted before the login, in bytes."""
        return self.options.get(options.SASL_SERVER_MAX_RECEIVE_SIZE)

    # --- where users come from -------------------------------------------------------------------------

    def _plain_check(self) -> Check:
        handler = self.options.get(options.SASL_SERVER_CALLBACK_HANDLER_CLASS, PLAIN)
        if handler is not None:
            name = self.options.name_of(options.SASL_SERVER_CALLBACK_HANDLER_CLASS, PLAIN)
            if ":" not in handler:
                raise ConfigError(
                    f"{name}={handler}: a Java class cannot run here; name a Python function MODULE:FUNCTION"
                )
            named_check: Check = self._once(PLAIN, handler, lambda: check_named(name, handler))
            return named_check
        entry = self._jaas_entry(PLAIN, "PlainLoginModule")
        check: Check = self._once(PLAIN, entry, lambda: check_of(jaas.users_of(entry)))
        return check

    async def _token_known(self, mechanism: str, token_id: str) -> Known:
        """The credential for a login with a token. A key is derived in a thread, whether the token exists or not: neither
        the time that this takes, nor other connections, notice the difference. One at a time, because the peer has not
        logged in yet.
        """
        instead = stand_in(mechanism, f"token {token_id}", self._secret(), {})
        token_known = self._token(token_id)
        password = token_known[1] if token_known is not None else instead.stored_key.hex()
        async with self._deriving:
            derived = await asyncio.to_thread(new_credential, mechanism, password, instead.salt)
        if token_known is None:
            return Known(instead, False, "")
        token = token_known[0]
        return Known(derived, True, token.owner.partition(":")[2], token.expiry_ms)

    def _known(self, mechanism: str, user: str) -> Known | Awaitable[Known]:
        """The credential for a login; does the same work whether the user exists or not."""
        if self._is_fresh(mechanism):
            return self._known_now(mechanism, user)
        return self._known_later(mechanism, user)

    async def _known_later(self, mechanism: str, user: str) -> Known:
        """Users are counted in a thread, by one login for all that wait: there may be very many, and the peer has not logged
        in yet.
        """
        async with self._counting:
            if not self._is_fresh(mechanism):
                now_ms = self._clock.monotonic_ms()
                shapes, text = await asyncio.to_thread(_counted, self._users(), mechanism)
                self._spares[mechanism] = Spare(shapes, text, now_ms)
        return self._known_now(mechanism, user)

    def _known_now(self, mechanism: str, user: str) -> Known:
        spare = self._spares[mechanism]
        instead = stand_in(mechanism, user, self._secret(), spare.shapes)
        text = self._users().get(("users", sanitize(user)), {}).get(mechanism)
        credential = decode_credential(spare.text if text is None else text)
        if text is None or credential is None:
            return Known(instead, False, user)
        return Known(credential, True, user)

    def _is_fresh(self, mechanism: str) -> bool:
        kept = self._spares.get(mechanism)
        return kept is not None and self._clock.monotonic_ms() - kept.since_ms <= SPARE_MS

    def _token_rules(self) -> tuple[Rules, Keys | None]:
        def get(option: Option[T], mechanism: str = OAUTHBEARER) -> T:
            return self.options.get(option, mechanism)

        audience: tuple[str, ...] | None = get(options.SASL_OAUTHBEARER_EXPECTED_AUDIENCE)
        handler = get(options.SASL_SERVER_CALLBACK_HANDLER_CLASS)
        url = get(options.SASL_OAUTHBEARER_JWKS_ENDPOINT_URL)
        unsecured = handler == UNSECURED
        if not url and not unsecured:
            raise ConfigError(
                "OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url, where the keys that sign tokens are found"
            )
        entry = self._jaas_entry(OAUTHBEARER, "OAuthBearerLoginModule", needed=False)
        rules = Rules(
            audience=audience or (),
            issuer=get(options.SASL_OAUTHBEARER_EXPECTED_ISSUER),
            user_claim=get(options.SASL_OAUTHBEARER_SUB_CLAIM_NAME),
            scope_claim=get(options.SASL_OAUTHBEARER_SCOPE_CLAIM_NAME),
            skew_s=get(options.SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS),
            scope=frozenset(
                entry.get("requiredScope", entry.get("unsecuredValidatorRequiredScope", "")).split()
            ),
            unsecured=unsecured,
        )
        if unsecured:
            self._once(OAUTHBEARER, UNSECURED, self._warn_unsecured)
            return rules, None
        assert url is not None
        refresh_ms = get(options.SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS)
        retry_ms = get(options.SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS)
        keys: Keys = self._once(
            OAUTHBEARER,
            (url, refresh_ms, retry_ms),
            lambda: Keys(url, refresh_ms, retry_ms, self._clock.monotonic_ms),
        )
        return rules, keys

    def _kerberos(self) -> tuple[Acceptor, tuple[kerberos_names.Rule, ...]]:
        option, module = options.SASL_JAAS_CONFIG, MODULE
        key = key_of(self._jaas_entry(GSSAPI, module, needed=False))
        where = self.options.name_of(option, GSSAPI)
        if key is None:
            prefix = f"listener.name.{self.options.listener.lower()}.{GSSAPI.lower()}"
            raise ConfigError(
                f"GSSAPI needs this broker's principal and keytab; set {prefix}.{option.name}="
                f'com.sun.security.auth.module.{module} required useKeyTab=true keyTab="FILE" '
                f'principal="kafka/HOST@REALM";'
            )
        kerberos_names.require_service(where, key[0], self._service())
        texts = self.options.get(options.SASL_KERBEROS_PRINCIPAL_TO_LOCAL_RULES, GSSAPI)
        rules: tuple[kerberos_names.Rule, ...] = self._once(
            "GSSAPI rules", texts, lambda: kerberos_names.parse_rules(texts)
        )
        acceptor: Acceptor = self._once(GSSAPI, key, lambda: Acceptor(*key))
        return acceptor, rules

    def _service(self) -> str | None:
        entry = self._jaas_entry(GSSAPI, MODULE, needed=False)
        return self.options.get(options.SASL_KERBEROS_SERVICE_NAME, GSSAPI) or entry.get("serviceName")

    def _warn_unsecured(self) -> None:
        log.warning(
            "OAUTHBEARER accepts tokens without a signature: everybody may log in as anybody; this is for trials only",
            extra={"listener": self.options.listener},
        )

    def _jaas_entry(self, mechanism: str, module: str, *, needed: bool = True) -> jaas.Entry:
        """The listener's JAAS entry, empty if it is not needed. A JAAS file is read again for each login."""
        option = options.SASL_JAAS_CONFIG
        made_of = self.options.get(option, mechanism)
        if made_of is not None:
            entry: jaas.Entry | None = self._once(
                f"{mechanism} users", made_of, lambda: jaas.entry_of(self.options, mechanism, module, None)
            )
        else:
            entry = jaas.entry_of(self.options, mechanism, module, self._jaas_file)
        if entry is not None:
            return entry
        if not needed:
            return {}
        prefix = f"listener.name.{self.options.listener.lower()}.{mechanism.lower()}"
        raise ConfigError(
            f"{mechanism} has no users; set {prefix}.{option.name}=org.apache.kafka.common.security.plain.{module} "
            f'required user_NAME="PASSWORD"; or {prefix}.sasl.server.callback.handler.class=MODULE:FUNCTION'
        )

    def _once(self, what: str, made_of: object, make: Callable[[], Any]) -> Any:
        """The object that was last made for a purpose, if it was made of the same options; else a new one."""
        kept = self._contexts.get(what)
        if kept is None or kept[0] != made_of:
            kept = self._contexts[what] = (made_of, make())
        return kept[1]


def _counted(
    configs: Mapping[tuple[str, str], Mapping[str, str]], mechanism: str
) -> tuple[Mapping[CredentialForm, int], str]:
    """(how many users have each shape, the first of their credentials in order). Runs in a thread, while the loop may
    change the configs: they are copied in one step.
    """
    texts = [
        text
        for (kind, _), user_options in list(configs.items())
        if kind == "users" and (text := user_options.get(mechanism)) is not None
    ]
    shapes = Counter(shape for text in texts if (shape := shape_of(text)) is not None)
    return shapes, min(texts, default="")
