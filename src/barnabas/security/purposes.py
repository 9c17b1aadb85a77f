"""The purposes of certificates (extendedKeyUsage), and what a refusal for that reason means. Pure.

OpenSSL and Java check the same: the side that accepts a connection requires clientAuth in the peer's certificate, the side
that connects requires serverAuth. A certificate that states no purposes is good for both. Brokers use theirs in both roles:
a usual "web server" certificate (serverAuth alone) is good enough for clients, but refused by other brokers if they ask for
certificates.
"""

from __future__ import annotations

import ssl
from typing import Final

INVALID_PURPOSE: Final = 26
"""OpenSSL's X509_V_ERR_INVALID_PURPOSE."""
NO_CLIENT_AUTH: Final = "its extendedKeyUsage does not name clientAuth"
NO_SERVER_AUTH: Final = "its extendedKeyUsage does not name serverAuth"
UNSUPPORTED: Final = "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE"
"""The reason of the error on the side whose certificate was refused."""


def lacks(pem: bytes) -> frozenset[str]:
    """Which of NO_CLIENT_AUTH and NO_SERVER_AUTH is true of the first certificate in a PEM text.

    Empty if it states no purposes, if there is no certificate, or if the library that reads it is not installed.
    """
    try:
        from cryptography import x509
        from cryptography.x509.oid import ExtendedKeyUsageOID
    except ImportError:
        return frozenset()
    begin = pem.find(b"-----BEGIN CERTIFICATE")
    if begin < 0:
        return frozenset()
    try:
        certificate = x509.load_pem_x509_certificate(pem[begin:])
        purposes = set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except (x509.ExtensionNotFound, ValueError):
        return frozenset()
    if ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in purposes:
        return frozenset()
    wanted = (
        (ExtendedKeyUsageOID.CLIENT_AUTH, NO_CLIENT_AUTH),
        (ExtendedKeyUsageOID.SERVER_AUTH, NO_SERVER_AUTH),
    )
    return frozenset(text for purpose, text in wanted if purpose not in purposes)


def why_not_trusted(error: ssl.SSLCertVerificationError, missing: str) -> str:
    """Why this side refuses a certificate. missing: what it lacks if its purpose is the reason."""
    return missing if error.verify_code == INVALID_PURPOSE else error.verify_message


def why_ended(error: ssl.SSLError, missing: str) -> str:
    """Why the other side has closed a connection. missing: what our certificate lacks if its purpose is the reason."""
    if error.reason == UNSUPPORTED:
        return f"it refuses this side's certificate: {missing} ({error.reason})"
    return error.reason or str(error)
