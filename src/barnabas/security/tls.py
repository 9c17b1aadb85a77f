"""TLS of listeners: certificates, versions, ciphers, whether clients need a certificate, and the principals of those.

A listener's `ssl.SSLContext` is created from its options and files, and created again when either changes while the
broker runs: new connections use the new one, open connections keep theirs.
"""

from __future__ import annotations

import logging
import os
import ssl
from typing import TYPE_CHECKING, Final

from barnabas.config import broker_security as options
from barnabas.config.option import ConfigError, refused
from barnabas.security import names, purposes, stores
from barnabas.security.listener_options import ListenerOptions

if TYPE_CHECKING:
    from barnabas.config.loader import BrokerConfig

log = logging.getLogger("barnabas.tls")

ANONYMOUS: Final = "User:ANONYMOUS"
VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
VERIFY: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
TLS_1_3_SUITES: Final = frozenset(
    (
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_128_CCM_SHA256",
    )
)
TLS_OPTIONS: Final = (
    options.SSL_KEYSTORE_LOCATION, options.SSL_KEYSTORE_PASSWORD, options.SSL_KEYSTORE_KEY,
    options.SSL_KEYSTORE_CERTIFICATE_CHAIN, options.SSL_KEY_PASSWORD, options.SSL_TRUSTSTORE_LOCATION,
    options.SSL_TRUSTSTORE_PASSWORD, options.SSL_TRUSTSTORE_CERTIFICATES, options.SSL_CLIENT_AUTH,
    options.SSL_ENABLED_PROTOCOLS, options.SSL_CIPHER_SUITES, options.SSL_PRINCIPAL_MAPPING_RULES,
)  # fmt: skip


class TlsListener:
    """TLS of one listener. `context` serves new connections; `refresh` applies changes of options and files."""

    def __init__(self, config: BrokerConfig, listener: str) -> None:
        """Load the listener's certificates. Raises ConfigError."""
        self._options = ListenerOptions(config, listener)
        self.listener = listener
        self._seen = state_of(self._options)
        self.context, self._rules = self._make()
        self._subject = self._own_subject()
        if purposes.NO_SERVER_AUTH in purposes.lacks(stores.key_material(self._options).pem):
            log.warning(
                "clients will refuse this listener's certificate",
                extra={"listener": listener, "reason": purposes.NO_SERVER_AUTH},
            )

    def refresh(self) -> None:
        """Create the context again if options or files have changed; log an error and keep it if they are wrong."""
        try:
            seen = state_of(self._options)
            if seen == self._seen:
                return
            self._seen = seen
            context, rules = self._make()
            self._check_same_name()
        except ConfigError as error:
            log.error(
                "the new certificates are refused; the listener keeps the ones it has",
                extra={"listener": self.listener, "reason": str(error)},
            )
            return
        self.context, self._rules = context, rules
        self._subject = self._own_subject()
        log.info("certificates replaced", extra={"listener": self.listener})

    def principal(self, certificate: bytes | None) -> str | None:
        """The principal of a client's certificate (DER): ANONYMOUS without one, None if no mapping rule applies."""
        if certificate is None:
            return ANONYMOUS
        name = names.map_subject(self._rules, names.subject_of(certificate))
        return None if name is None else f"User:{name}"

    def _make(self) -> tuple[ssl.SSLContext, tuple[names.Rule, ...]]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        set_versions(self._options, context)
        load_key(self._options, context)
        wanted = self._options.get(options.SSL_CLIENT_AUTH)
        if load_trusted(self._options, context):
            context.verify_mode = VERIFY[wanted]
        elif wanted != "none":
            raise ConfigError(
                f"ssl.client.auth={wanted} needs certificates to check clients against; set ssl.truststore.location"
            )
        return context, names.parse_rules(self._options.get(options.SSL_PRINCIPAL_MAPPING_RULES))

    # --- replacing ---------------------------------------------------------------------------------------

    def _own_subject(self) -> tuple[str, frozenset[str]] | None:
        """Subject and alternative names of the broker's certificate; None if the library that reads them is missing."""
        try:
            from cryptography import x509
        except ImportError:
            return None
        pem = stores.key_material(self._options).pem
        certificate = x509.load_pem_x509_certificate(pem[pem.index(b"-----BEGIN CERTIFICATE") :])
        subject = names.subject_name(certificate).rfc4514_string()
        try:
            alternative_names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        except x509.ExtensionNotFound:
            return subject, frozenset()
        return subject, frozenset(str(name.value) for name in alternative_names.value)

    def _check_same_name(self) -> None:
        """As in Kafka, a certificate may only be replaced by one for the same broker. Raises ConfigError."""
        was, now = self._subject, self._own_subject()
        if was is None or now is None:
            return
        if was[0] != now[0] and not self._options.get(options.SSL_ALLOW_DN_CHANGES):
            raise ConfigError(
                f"its subject is {now[0]} and was {was[0]}; ssl.allow.dn.changes=true would allow that"
            )
        if not was[1] <= now[1] and not self._options.get(options.SSL_ALLOW_SAN_CHANGES):
            gone = ", ".join(sorted(was[1] - now[1]))
            raise ConfigError(
                f"it is no longer valid for {gone}; ssl.allow.san.changes=true would allow that"
            )


def state_of(listener: ListenerOptions) -> object:
    """A value that changes with the listener's TLS options and files. Raises ConfigError for a missing file."""
    files = []
    for path in stores.files_of(listener):
        try:
            status = os.stat(path)
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from None
        files.append((path, status.st_mtime_ns, status.st_ino, status.st_size))
    return listener.as_dict(*TLS_OPTIONS), files


def set_versions(listener: ListenerOptions, context: ssl.SSLContext) -> None:
    """Set the TLS versions and cipher suites of a context to the listener's. Raises ConfigError."""
    option = options.SSL_ENABLED_PROTOCOLS
    wanted = listener.get(option)
    usable = [VERSIONS[name] for name in wanted if name in VERSIONS]
    if not usable:
        raise refused(option.name, ",".join(wanted), f"must name at least one of {', '.join(VERSIONS)}")
    suites = listener.get(options.SSL_CIPHER_SUITES)
    if suites and not TLS_1_3_SUITES & set(suites):
        usable = [version for version in usable if version is ssl.TLSVersion.TLSv1_2] or usable
    context.minimum_version, context.maximum_version = min(usable), max(usable)
    older = [openssl_name(suite) for suite in suites if suite not in TLS_1_3_SUITES]
    if not suites:
        return
    if not older:  # only suites of TLS 1.3 are named
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    try:
        context.set_ciphers(":".join(older))
    except ssl.SSLError:
        raise refused(
            options.SSL_CIPHER_SUITES.name,
            ",".join(suites),
            "OpenSSL supports none of these suites",
        ) from None


def load_key(listener: ListenerOptions, context: ssl.SSLContext) -> None:
    """Load the listener's key and certificates into a context. Raises ConfigError."""
    material = stores.key_material(listener)
    option = listener.name_of(options.SSL_KEYSTORE_LOCATION)
    with stores.as_file(material.pem) as path:
        try:
            context.load_cert_chain(path, password=lambda: material.password or "")
        except ssl.SSLError as error:
            raise ConfigError(f"{option}: {why_unusable(error)}") from None


def why_unusable(error: ssl.SSLError, password_option: str = "ssl.key.password") -> str:
    """What is wrong with a key and its certificates, and what to do, by OpenSSL's reason for refusing them."""
    reason = error.reason or ""
    if reason.endswith("_MD_TOO_WEAK"):
        return (
            "one of the certificates is signed with a digest that is no longer secure (MD5 or SHA-1); issue it again "
            "with SHA-256"
        )
    if reason.endswith("_KEY_TOO_SMALL"):
        return "the key of one of the certificates is too short; RSA keys need 2048 bits or more"
    if reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"):
        return "the key does not belong to the first certificate; store the certificate that was issued for this key"
    if not reason or reason in ("BAD_DECRYPT", "BAD_PASSWORD_READ"):
        return (
            f"no private key with its certificate can be read; is {password_option} right, and does it hold a "
            "certificate?"
        )
    return f"the key and certificates cannot be used: {reason.lower().replace('_', ' ')}"


def load_trusted(listener: ListenerOptions, context: ssl.SSLContext) -> bool:
    """Load the certificates that the listener trusts into a context; False if it names none. Raises ConfigError."""
    pem = stores.trusted(listener)
    if pem is None:
        return False
    with stores.as_file(pem) as path:
        try:
            context.load_verify_locations(path)
        except ssl.SSLError as error:
            option = listener.name_of(options.SSL_TRUSTSTORE_LOCATION)
            raise ConfigError(f"{option}: no certificates can be read there ({error.reason})") from None
    # As in Java: every certificate in a truststore is trusted, even an intermediate authority's without its issuer's.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if stores.CRL_BEGIN in pem:
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return True


def openssl_name(suite: str) -> str:
    """OpenSSL's name for a cipher suite: ECDHE-RSA-AES128-GCM-SHA256 for TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256."""
    if "_WITH_" not in suite:
        return suite
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC", "")
    if cipher.startswith("CHACHA20"):
        cipher = "CHACHA20-POLY1305"
    prefix = "" if exchange == "RSA" else exchange.replace("_", "-") + "-"
    return prefix + cipher.replace("_", "-")
