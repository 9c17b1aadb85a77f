"""How a broker connects to the other brokers of its cluster: which listener it uses, TLS as a client, the login.

The options are those of the inter-broker listener, and are read again for each connection: its keystore has the
certificate that this broker presents, its truststore the certificates that it trusts, and its JAAS entry the user.
"""

from __future__ import annotations

import logging
import ssl
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from barnabas.config import broker_security as options
from barnabas.config.option import ConfigError
from barnabas.security import purposes, stores
from barnabas.security.kerberos_names import require_service
from barnabas.security.listener_options import ListenerOptions
from barnabas.security.sasl import jaas
from barnabas.security.sasl.client import (
    GSSAPI,
    MECHANISMS,
    OAUTHBEARER,
    PLAIN,
    BearerLogin,
    ClientLogin,
    new_login,
)
from barnabas.security.sasl.client_gssapi import Initiator
from barnabas.security.sasl.gssapi import MODULE, key_of
from barnabas.security.tls import load_key, load_trusted, set_versions, state_of

if TYPE_CHECKING:
    from barnabas.config.loader import BrokerConfig

log = logging.getLogger("barnabas.tls")

MODULES: Final = {PLAIN: "PlainLoginModule"}
SCRAM_MODULE: Final = "ScramLoginModule"


class BetweenBrokers:
    """See the module. The constructor raises ConfigError for options that are missing, wrong or do not fit together."""

    def __init__(self, config: BrokerConfig) -> None:
        listener = config.inter_broker_listener
        protocol = "PLAINTEXT" if listener is None else listener.security_protocol
        self._options = ListenerOptions(config, "" if listener is None else listener.name)
        self._has_tls, self._has_login = protocol.endswith("SSL"), protocol.startswith("SASL")
        self._jaas_file = jaas.file_named()
        self._context: ssl.SSLContext | None = None
        self._seen: object = None
        self._initiator: Initiator | None = None
        if self._has_tls:
            self._seen = state_of(self._options)
            self._context = self._new_context()
            self._warn_of_purpose()
        if self._has_login:
            self._check_mechanism()
            self.login("")

    def tls(self) -> ssl.SSLContext | None:
        """The context for the next connection; None without TLS. Changed files are loaded if they are valid."""
        if not self._has_tls:
            return None
        try:
            seen = state_of(self._options)
            if seen != self._seen:
                self._seen = seen
                self._context = self._new_context()
        except ConfigError as error:
            log.error(
                "the new certificates are refused; connections to other brokers use the old ones",
                extra={"listener": self._options.listener, "reason": str(error)},
            )
        return self._context

    def _new_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        set_versions(self._options, context)
        if self._has_certificate:
            load_key(self._options, context)
        if not load_trusted(self._options, context):
            context.load_default_certs()
        algorithm = self._options.get(options.SSL_ENDPOINT_IDENTIFICATION_ALGORITHM)
        context.check_hostname = algorithm.lower() not in ("", "none")
        return context

    @property
    def _has_certificate(self) -> bool:
        return any(map(self._options.get, (options.SSL_KEYSTORE_LOCATION, options.SSL_KEYSTORE_KEY)))

    def _warn_of_purpose(self) -> None:
        """Warn if other brokers will refuse the certificate. They are assumed to have this broker's ssl.client.auth."""
        asks = self._options.get(options.SSL_CLIENT_AUTH) != "none"
        if not asks or not self._has_certificate:
            return
        if purposes.NO_CLIENT_AUTH in purposes.lacks(stores.key_material(self._options).pem):
            log.warning(
                "other brokers will refuse this broker's certificate, if they ask for one (ssl.client.auth)",
                extra={"listener": self._options.listener, "reason": purposes.NO_CLIENT_AUTH},
            )

    @property
    def _mechanism(self) -> str:
        return self._options.get(options.SASL_MECHANISM_INTER_BROKER_PROTOCOL).upper()

    def _check_mechanism(self) -> None:
        name, mechanism = options.SASL_MECHANISM_INTER_BROKER_PROTOCOL.name, self._mechanism
        if mechanism not in MECHANISMS:
            raise ConfigError(
                f"{name}={mechanism}: brokers can log in to each other with one of {', '.join(MECHANISMS)}"
            )
        enabled = [text.upper() for text in self._options.get(options.SASL_ENABLED_MECHANISMS)]
        if mechanism not in enabled:
            raise ConfigError(
                f"{name}={mechanism} is not among sasl.enabled.mechanisms ({', '.join(enabled)}) of listener "
                f"{self._options.listener}; brokers could not log in to each other"
            )

    def login(self, host: str) -> ClientLogin | None:
        """A new login for a connection to `host`; None if none is needed. Raises ConfigError."""
        if not self._has_login:
            return None
        mechanism = self._mechanism
        if mechanism == OAUTHBEARER:
            return self._bearer()
        if mechanism == GSSAPI:
            return self._kerberos().login(host)
        module = MODULES.get(mechanism, SCRAM_MODULE)
        entry = jaas.entry_of(self._options, mechanism, module, self._jaas_file) or {}
        user, password = entry.get("username"), entry.get("password")
        if not user or not password:
            prefix = f"listener.name.{self._options.listener.lower()}.{mechanism.lower()}"
            raise ConfigError(
                f"this broker has no user to log in to other brokers with; set username and password in {prefix}."
                f"{options.SASL_JAAS_CONFIG.name}"
            )
        return new_login(mechanism, user, password)

    def _kerberos(self) -> Initiator:
        """Logs in with the principal and keytab that this broker also uses to accept logins."""
        entry = jaas.entry_of(self._options, GSSAPI, MODULE, self._jaas_file) or {}
        key = key_of(entry)
        where = self._options.name_of(options.SASL_JAAS_CONFIG, GSSAPI)
        if key is None:
            raise ConfigError(
                f"{where}: logins to other brokers with GSSAPI need keyTab and principal in {MODULE}"
            )
        service = self._options.get(options.SASL_KERBEROS_SERVICE_NAME, GSSAPI) or entry.get("serviceName")
        made_of = (*key, service or require_service(where, key[0], None).service)
        if self._initiator is None or self._initiator.made_of != made_of:
            self._initiator = Initiator(*made_of)
        return self._initiator

    def _bearer(self) -> BearerLogin:
        """A login with the token that the file contains now: it may be replaced at any time."""
        option = options.SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL
        name, url = self._options.name_of(option, OAUTHBEARER), self._options.get(option, OAUTHBEARER)
        if not url or not url.startswith("file:"):
            raise ConfigError(f"{name}={url or ''}: brokers read their token from a file: file:///PATH")
        try:
            with open(unquote(urlsplit(url).path), encoding="ascii") as file:
                return BearerLogin(file.read().strip())
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{name}={url}: the token cannot be read: {error}") from None
        except ConfigError as error:
            raise ConfigError(f"{name}={url}: {error}") from None
