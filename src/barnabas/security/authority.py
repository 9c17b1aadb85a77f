"""A private certificate authority, with which `barnabas security init` and the tests issue certificates."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 825
"""The longest validity that Apple's clients accept; others accept longer ones."""
CLOCK_SLACK: Final = datetime.timedelta(minutes=10)


class Authority:
    """An authority's private key, and its certificate, which others trust."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self.certificate = certificate

    @classmethod
    def new(cls, name: str) -> Authority:
        """A new authority with a new key, valid for CA_DAYS."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _named(name)
        builder = _begun(subject, subject, key, CA_DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        return cls(key, builder.sign(key, hashes.SHA256()))

    @classmethod
    def load(cls, key_pem: bytes, certificate_pem: bytes) -> Authority:
        """An authority from saved PEM texts. Raises ValueError."""
        try:
            key = load_pem_private_key(key_pem, None)
        except TypeError as error:
            raise ValueError("the authority's key has a password; save it without one") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError(
                "the authority's key is not an elliptic-curve key like those of `barnabas security init`"
            )
        return cls(key, x509.load_pem_x509_certificate(certificate_pem))

    @property
    def pem(self) -> bytes:
        """The certificate, in PEM."""
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The private key, in PEM and unencrypted: keep it where nobody else can read it."""
        return _key_pem(self._key)

    def issue(
        self,
        name: str,
        hosts: Sequence[str] = (),
        *,
        days: int = CERTIFICATE_DAYS,
        purposes: Sequence[x509.ObjectIdentifier] | None = None,
    ) -> tuple[bytes, bytes]:
        """(private key, certificate followed by the authority's), both PEM, for a broker at `hosts` or for a client.

        days: of validity. purposes: the extendedKeyUsage; by default clientAuth, and serverAuth if there are hosts.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _begun(_named(name), self.certificate.subject, key, days)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        usual = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes or usual), critical=False)
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(identifier, critical=False)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(_alternative(hosts)), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return _key_pem(key), certificate.public_bytes(Encoding.PEM) + self.pem

    def revoke(self, certificates: Sequence[bytes], *, days: int = CA_DAYS) -> bytes:
        """A revocation list (PEM) that names these certificates (PEM)."""
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateRevocationListBuilder().issuer_name(self.certificate.subject)
        builder = builder.last_update(now - CLOCK_SLACK).next_update(now + datetime.timedelta(days=days))
        for pem in certificates:
            serial = x509.load_pem_x509_certificate(pem).serial_number
            revoked = (
                x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now - CLOCK_SLACK)
            )
            builder = builder.add_revoked_certificate(revoked.build())
        return builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, replacing one that others may have been able to read."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(data)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _begun(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int) -> Any:
    now = datetime.datetime.now(datetime.UTC)
    public = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SLACK)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(hosts: Sequence[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return names


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
