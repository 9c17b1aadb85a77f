"""Keys and certificates that OpenSSL refuses: the message says what is wrong with them, and what to do."""

from __future__ import annotations

import datetime as dt
import ssl
import subprocess
from pathlib import Path

import pytest

from barnabas.config.loader import load
from barnabas.config.option import ConfigError
from barnabas.security.listener_options import ListenerOptions
from barnabas.security.tls import load_key
from tests.clients.foreign import need

pytest.importorskip("cryptography")

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

Pem = tuple[bytes, bytes]
KEY = rsa.generate_private_key(65537, 2048)
OTHER_KEY = rsa.generate_private_key(65537, 2048)
SHORT_KEY = rsa.generate_private_key(65537, 1024)


def tls(file: Path) -> None:
    config = load(overrides={"ssl.keystore.location": str(file)})
    load_key(ListenerOptions(config, "TLS"), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))


def certificate(key: rsa.RSAPrivateKey, issuer_key: rsa.RSAPrivateKey, digest: hashes.HashAlgorithm) -> bytes:
    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = dt.datetime.now(dt.UTC)
    certificate_ = (
        x509.CertificateBuilder()
        .subject_name(name("broker")).issuer_name(name("ca" if key is not issuer_key else "broker"))
        .public_key(key.public_key()).serial_number(7).not_valid_before(now).not_valid_after(now + dt.timedelta(1))
        .sign(issuer_key, digest)
    )  # fmt: skip
    return certificate_.public_bytes(Encoding.PEM)


def private(key: rsa.RSAPrivateKey, password: bytes = b"") -> bytes:
    way = BestAvailableEncryption(password) if password else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, way)


GOOD = private(KEY) + certificate(KEY, KEY, hashes.SHA256())
WEAK = r"signed with a digest that is no longer secure \(MD5 or SHA-1\); issue it again with SHA-256"
FILES = {
    "short key": (
        private(SHORT_KEY) + certificate(SHORT_KEY, SHORT_KEY, hashes.SHA256()),
        "too short; RSA keys need 2048 bits",
    ),
    "no pair": (
        private(OTHER_KEY) + certificate(KEY, KEY, hashes.SHA256()),
        "the key does not belong to the first certificate",
    ),
    "password": (
        private(KEY, b"abc") + certificate(KEY, KEY, hashes.SHA256()),
        r"is ssl\.key\.password right",
    ),
    "no certificate": (private(KEY), "does it hold a certificate"),
}


def test_a_weak_digest_is_said(tmp_path: Path) -> None:
    """Made by openssl, because the library no longer signs like that."""
    signed = tmp_path / "signed.pem"
    (tmp_path / "ca.pem").write_bytes(private(OTHER_KEY) + certificate(OTHER_KEY, OTHER_KEY, hashes.SHA256()))
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(KEY, hashes.SHA256())
    (tmp_path / "request.pem").write_bytes(request.public_bytes(Encoding.PEM))
    command = [need("openssl"), "x509", "-req", "-in", str(tmp_path / "request.pem"), "-CA", str(tmp_path / "ca.pem"),
               "-set_serial", "7", "-sha1", "-out", str(signed)]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    (tmp_path / "store.pem").write_bytes(private(KEY) + signed.read_bytes())
    with pytest.raises(ConfigError, match=WEAK) as refused:
        tls(tmp_path / "store.pem")
    assert "password" not in str(refused.value)


@pytest.mark.parametrize("name", FILES)
def test_the_reason_is_said(tmp_path: Path, name: str) -> None:
    data, reason = FILES[name]
    file = tmp_path / "store.pem"
    file.write_bytes(data)
    with pytest.raises(ConfigError, match=reason) as refused:
        tls(file)
    assert "ssl.keystore.location" in str(refused.value)
    assert ("password" in str(refused.value)) == (name in ("password", "no certificate"))


def test_a_good_one_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "store.pem"
    file.write_bytes(GOOD)
    tls(file)
