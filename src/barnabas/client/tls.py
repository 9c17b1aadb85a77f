"""TLS of clients: Java's stores (JKS, PKCS12) and PEM files, by Java's names of options and by librdkafka's.

| what | Java | librdkafka |
|---|---|---|
| trusted certificates | ssl.truststore.location with .password, ssl.truststore.certificates | ssl.ca.location, ssl.ca.pem |
| own key and certificates | ssl.keystore.location with .password, ssl.keystore.key with ssl.keystore.certificate.chain | \
ssl.certificate.location with ssl.key.location, ssl.certificate.pem with ssl.key.pem |

A store's format is determined from its first bytes, whatever ssl.truststore.type says.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from barnabas.client.errors import ClientError
from barnabas.config.option import ConfigError
from barnabas.security import stores
from barnabas.security.purposes import NO_SERVER_AUTH, why_not_trusted
from barnabas.security.stores import KeyMaterial

TRUST_FILES: Final = ("ssl.truststore.location", "ssl.ca.location")
TRUST_TEXTS: Final = ("ssl.truststore.certificates", "ssl.ca.pem")
KEY_FILES: Final = ("ssl.keystore.location", "ssl.certificate.location")
KEY_TEXTS: Final = (
    ("ssl.keystore.key", "ssl.keystore.certificate.chain"),
    ("ssl.key.pem", "ssl.certificate.pem"),
)
STORE_NAMES: Final = frozenset(
    {
        *TRUST_FILES, *TRUST_TEXTS, *KEY_FILES, *(name for pair in KEY_TEXTS for name in pair), "ssl.key.location",
        "ssl.key.password", "ssl.keystore.password", "ssl.keystore.type", "ssl.truststore.password",
        "ssl.truststore.type",
    }
)  # fmt: skip
"""All options that name keys and certificates, or passwords of these."""
JAVA_ONLY: Final = frozenset(
    {
        "ssl.protocol", "ssl.enabled.protocols", "ssl.provider", "ssl.client.auth", "ssl.keymanager.algorithm",
        "ssl.trustmanager.algorithm", "ssl.secure.random.implementation", "ssl.engine.factory.class",
        "sasl.login.callback.handler.class", "sasl.client.callback.handler.class", "sasl.login.class",
    }
)  # fmt: skip
"""Java's settings that mean nothing here: TLS 1.2 and 1.3 are used, with the suites that OpenSSL chooses."""
CRL_FILE: Final = "ssl.crl.location"
HOST_MISMATCHES: Final = frozenset({62, 64})
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""
EXPIRED: Final = frozenset({9, 10})
"""OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED."""
SYSTEM_WORD: Final = "probe"
"""As ssl.ca.location: librdkafka looks for the system's own certificates."""


class Named(NamedTuple):
    """An option and its value."""

    option: str
    value: str

    def __str__(self) -> str:
        return self.option if "BEGIN" in self.value else f"{self.option}={self.value}"


@dataclass(frozen=True, slots=True)
class Trust:
    """Certificates that servers are checked against. pem: None for the system's own, or those in `folder`."""

    source: Named | None
    pem: bytes | None = None
    folder: str | None = None


def first(options: Mapping[str, str], names: tuple[str, ...]) -> Named | None:
    """The first of these options that is set."""
    return next((Named(name, options[name]) for name in names if options.get(name)), None)


def trust_of(options: Mapping[str, str]) -> Trust:
    """What the options trust. Raises ClientError that names the option and the file."""
    text = first(options, TRUST_TEXTS)
    if text is not None:
        return Trust(text, stores.trusted_of_text(text.value))
    file = first(options, TRUST_FILES)
    if file is None or file.value == SYSTEM_WORD:
        return Trust(None)
    if os.path.isdir(file.value):
        return Trust(file, folder=file.value)
    try:
        return Trust(file, stores.trusted_in(file.option, file.value, options.get("ssl.truststore.password")))
    except ConfigError as error:
        raise ClientError(str(error)) from None


def key_of(options: Mapping[str, str]) -> KeyMaterial | None:
    """The client's own key and certificates; None if the options name none. Raises ClientError."""
    password = options.get("ssl.key.password") or None
    for key, chain in KEY_TEXTS:
        if options.get(key) and options.get(chain):
            return stores.key_of_texts(options[key], options[chain], password)
    file = first(options, KEY_FILES)
    if file is None:
        return None
    try:
        material = stores.key_in(file.option, file.value, options.get("ssl.keystore.password"), password)
        if options.get("ssl.key.location"):
            key_file = stores.key_in("ssl.key.location", options["ssl.key.location"], None, password)
            material = KeyMaterial(key_file.pem + b"\n" + material.pem, password)
    except ConfigError as error:
        raise ClientError(str(error)) from None
    return material


def context_of(options: Mapping[str, str]) -> ssl.SSLContext:
    """The TLS context that the options describe. Raises ClientError naming the option and the file."""
    trust, key = trust_of(options), key_of(options)
    if trust.pem is None:
        context = ssl.create_default_context(capath=trust.folder)
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # As in Java: every certificate in a truststore is trusted, also without that of its issuer.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        if trust.pem is not None:
            with stores.as_file(trust.pem) as path:
                context.load_verify_locations(path)
    except (OSError, ssl.SSLError) as error:
        raise ClientError(f"{trust.source}: no certificates can be read there ({error})") from None
    _load_crl(context, options.get(CRL_FILE))
    context.check_hostname = checks_host(options)
    if options.get("enable.ssl.certificate.verification", "true").lower() in ("false", "0"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if key is not None:
        try:
            with stores.as_file(key.pem) as path:
                context.load_cert_chain(path, password=lambda: key.password or "")
        except (OSError, ssl.SSLError) as error:
            raise ClientError(
                f"{own_source(options)}: the key and certificates cannot be used ({error}); is ssl.key.password right, "
                "and are key and certificate a pair?"
            ) from None
    return context


def _load_crl(context: ssl.SSLContext, path: str | None) -> None:
    """Refuse servers whose certificate is on this list. Raises ClientError."""
    if not path:
        return
    try:
        context.load_verify_locations(path)
    except (OSError, ssl.SSLError) as error:
        raise ClientError(
            f"{CRL_FILE}={path}: no list of revoked certificates can be read ({error})"
        ) from None
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def checks_host(options: Mapping[str, str]) -> bool:
    """Whether the certificate must be valid for the name that the client connects to."""
    return options.get("ssl.endpoint.identification.algorithm", "https").strip().lower() not in ("", "none")


def own_source(options: Mapping[str, str]) -> str:
    """The option that names the client's certificate, for messages; empty if none does."""
    source = first(options, (*KEY_FILES, *(chain for _, chain in KEY_TEXTS)))
    return "" if source is None else str(source)


def not_trusted_text(options: Mapping[str, str], address: str, error: ssl.SSLCertVerificationError) -> str:
    """Why a server's certificate was refused, and where to look."""
    beginning = (
        f"the certificate of {address} is not trusted: {why_not_trusted(error, NO_SERVER_AUTH).rstrip('.')}"
    )
    if error.verify_code in HOST_MISMATCHES:
        return (
            f"{beginning}; connect by a name that is in it, or give the broker a certificate for this name "
            "(an empty ssl.endpoint.identification.algorithm would accept every name)"
        )
    if error.verify_code in EXPIRED:
        return f"{beginning}; the broker needs a new certificate (ssl.keystore.location of its listener)"
    source = trust_of(options).source
    if source is None:
        return (
            f"{beginning}; ssl.truststore.location (JKS, PKCS12, PEM) or ssl.ca.location (PEM) must name the certificate of "
            "the authority that issued it; neither is set"
        )
    return f"{beginning}; the authority that issued it must be in {source}"


def for_librdkafka(options: Mapping[str, str]) -> dict[str, str]:
    """The options with Java's stores replaced by files that librdkafka reads; the files exist in memory only.

    Raises ClientError naming the option and the file.
    """
    renamed = {name: value for name, value in options.items() if name not in STORE_NAMES | JAVA_ONLY}
    algorithm = "ssl.endpoint.identification.algorithm"
    if algorithm in renamed:
        renamed[algorithm] = "https" if checks_host(renamed) else "none"
    if not options.get("security.protocol", "PLAINTEXT").upper().endswith("SSL"):
        return renamed
    trust, key = trust_of(options), key_of(options)
    if trust.pem is not None:
        renamed["ssl.ca.location"] = stores.kept_file(trust.pem)
    elif trust.folder or options.get("ssl.ca.location"):
        renamed["ssl.ca.location"] = trust.folder or options["ssl.ca.location"]
    if key is not None:
        renamed["ssl.certificate.location"] = renamed["ssl.key.location"] = stores.kept_file(key.pem)
        if key.password:
            renamed["ssl.key.password"] = key.password
    return renamed
