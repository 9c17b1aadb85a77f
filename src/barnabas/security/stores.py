"""Reads keys and certificates from PEM, PKCS12 or JKS files, or from PEM text in an option (KIP-651).

Everything is converted to PEM. The format of a file is recognized by its first bytes: Java, too, opens a PKCS12 file
that is called JKS, and since Java 9 `keytool` writes PKCS12, whatever the file is called.
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.config import broker_security as options
from barnabas.config.option import ConfigError
from barnabas.extras import how_to_install

if TYPE_CHECKING:
    from barnabas.config.option import Option
    from barnabas.security.listener_options import ListenerOptions

PEM_BEGIN: Final = b"-----BEGIN "
CRL_BEGIN: Final = b"-----BEGIN X509 CRL-----"
JKS_MAGIC: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
DER_SEQUENCE: Final = b"\x30"


class KeyMaterial(NamedTuple):
    """A private key with its certificates, in PEM. password: decrypts the key; None if it needs none."""

    pem: bytes
    password: str | None


def readable_by_others(path: str) -> bool:
    """Whether users other than the owner and its group may read a file."""
    try:
        return bool(os.stat(path).st_mode & stat.S_IROTH)
    except OSError:
        return False


def key_material(listener: ListenerOptions) -> KeyMaterial:
    """The broker's key and certificates. Raises ConfigError naming option and file."""
    key, chain = listener.get(options.SSL_KEYSTORE_KEY), listener.get(options.SSL_KEYSTORE_CERTIFICATE_CHAIN)
    key_password = listener.get(options.SSL_KEY_PASSWORD)
    if key or chain:
        if not (key and chain):
            raise ConfigError(
                "ssl.keystore.key and ssl.keystore.certificate.chain belong together; only one of them is set"
            )
        return key_of_texts(key, chain, key_password)
    location = listener.get(options.SSL_KEYSTORE_LOCATION)
    if not location:
        raise ConfigError(
            f"listener {listener.listener} uses TLS but has no certificate; set ssl.keystore.location (a PEM, PKCS12 "
            "or JKS file), or create one with `barnabas security init DIR`"
        )
    option = listener.name_of(options.SSL_KEYSTORE_LOCATION)
    return key_in(option, location, listener.get(options.SSL_KEYSTORE_PASSWORD), key_password)


def key_in(option: str, location: str, password: str | None, key_password: str | None) -> KeyMaterial:
    """The private key and certificates in a PEM, PKCS12 or JKS file. Raises ConfigError naming `option` and the file."""
    data = _read(option, location)
    if data.lstrip().startswith(PEM_BEGIN):
        return KeyMaterial(data, key_password or password)
    if data.startswith(JKS_MAGIC):
        return KeyMaterial(_jks_key(option, location, data, password, key_password), None)
    return KeyMaterial(_pkcs12_key(option, location, data, password), None)


def trusted(listener: ListenerOptions) -> bytes | None:
    """The certificates (and revocation lists) that peers are checked against, in PEM; None when nothing is set.

    Raises ConfigError.
    """
    text = listener.get(options.SSL_TRUSTSTORE_CERTIFICATES)
    if text:
        return trusted_of_text(text)
    location = listener.get(options.SSL_TRUSTSTORE_LOCATION)
    if not location:
        return None
    option = listener.name_of(options.SSL_TRUSTSTORE_LOCATION)
    return trusted_in(option, location, listener.get(options.SSL_TRUSTSTORE_PASSWORD))


def trusted_in(option: str, location: str, password: str | None) -> bytes:
    """The certificates (and revocation lists) in a PEM, PKCS12 or JKS file, in PEM. Raises ConfigError."""
    data = _read(option, location)
    if data.lstrip().startswith(PEM_BEGIN):
        return data
    if data.startswith(JKS_MAGIC):
        store = _open_jks(option, location, data, password)
        certificates = [entry.cert for entry in store.certs.values()]
    else:
        certificates = _pkcs12_certificates(option, location, data, password)
    if not certificates:
        raise ConfigError(f"{option}: {location} holds no trusted certificate")
    return b"".join(_pem("CERTIFICATE", der) for der in certificates)


def key_of_texts(key: str, chain: str, password: str | None) -> KeyMaterial:
    """A key and certificates that options contain as PEM text."""
    return KeyMaterial(f"{_lines(key)}\n{_lines(chain)}\n".encode(), password)


def trusted_of_text(text: str) -> bytes:
    """Certificates that an option contains as PEM text."""
    return f"{_lines(text)}\n".encode()


@cache
def kept_file(pem: bytes) -> str:
    """As `as_file`, for as long as this process runs."""
    fd = os.memfd_create("barnabas-pem", os.MFD_CLOEXEC)
    os.write(fd, pem)
    return f"/proc/self/fd/{fd}"


@contextmanager
def as_file(pem: bytes) -> Iterator[str]:
    """A path from which OpenSSL can read `pem`. The file exists in memory only: keys are never written to a disk."""
    fd = os.memfd_create("barnabas-pem", os.MFD_CLOEXEC)
    try:
        os.write(fd, pem)
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


def _lines(pem: str) -> str:
    """PEM text from an option, with its line breaks restored if a properties file contains it as one line."""
    text = pem.strip().replace("\\n", "\n")
    if "\n" in text:
        return text
    parts = text.split("-----")  # "", "BEGIN X", " base64 ", "END X", "", ...
    if len(parts) < 5:
        return text
    blocks = []
    for at in range(1, len(parts) - 3, 4):
        body = "\n".join(textwrap.wrap("".join(parts[at + 1].split()), 64))
        blocks.append(f"-----{parts[at]}-----\n{body}\n-----{parts[at + 2]}-----")
    return "\n".join(blocks)


def _read(option: str, location: str) -> bytes:
    try:
        with open(location, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigError(f"{option}: cannot read {location}: {error.strerror or error}") from None


def _pem(kind: str, der: bytes) -> bytes:
    body = "\n".join(textwrap.wrap(base64.b64encode(der).decode(), 64))
    return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n".encode()


# --- PKCS12 -----------------------------------------------------------------------------------------------


def _open_pkcs12(option: str, location: str, data: bytes, password: str | None) -> Any:
    if not data.startswith(DER_SEQUENCE):
        raise ConfigError(f"{option}: {location} is not a PEM, PKCS12 or JKS file")
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise ConfigError(
            f"{option}: {location} is a PKCS12 file, which needs {how_to_install('security')}"
        ) from None
    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        raise ConfigError(
            f"{option}: {location} cannot be opened as PKCS12; is {_password_option(option)} right? ({error})"
        ) from None


def _pkcs12_key(option: str, location: str, data: bytes, password: str | None) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    store = _open_pkcs12(option, location, data, password)
    if store.key is None or store.cert is None:
        raise ConfigError(f"{option}: {location} holds no private key with a certificate")
    key: bytes = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = [store.cert, *store.additional_certs]
    return key + b"".join(entry.certificate.public_bytes(Encoding.PEM) for entry in chain)


def _pkcs12_certificates(option: str, location: str, data: bytes, password: str | None) -> list[bytes]:
    store = _open_pkcs12(option, location, data, password)
    from cryptography.hazmat.primitives.serialization import Encoding

    certificates = [*store.additional_certs, *([] if store.cert is None else [store.cert])]
    return [entry.certificate.public_bytes(Encoding.DER) for entry in certificates]


# --- JKS --------------------------------------------------------------------------------------------------


def _open_jks(option: str, location: str, data: bytes, password: str | None) -> Any:
    try:
        import jks
    except ImportError:
        raise ConfigError(
            f"{option}: {location} is a JKS file, which needs {how_to_install('security')}; or convert it: keytool "
            f"-importkeystore -srckeystore {location} -destkeystore NEW.p12 -deststoretype PKCS12"
        ) from None
    try:
        return jks.KeyStore.loads(data, password, try_decrypt_keys=False)
    except (jks.util.KeystoreException, ValueError, binascii.Error, IndexError) as error:
        raise ConfigError(
            f"{option}: {location} cannot be opened as JKS; is {_password_option(option)} right? ({error})"
        ) from None


def _jks_key(
    option: str, location: str, data: bytes, password: str | None, key_password: str | None
) -> bytes:
    import jks

    store = _open_jks(option, location, data, password)
    entry = next(iter(store.private_keys.values()), None)
    if entry is None:
        raise ConfigError(f"{option}: {location} holds no private key")
    try:
        entry.decrypt(key_password or password or "")
    except (jks.util.KeystoreException, ValueError) as error:
        raise ConfigError(
            f"{option}: the key in {location} cannot be opened; is ssl.key.password right? ({error})"
        ) from None
    chain = [der for _, der in entry.cert_chain]
    return _pem("PRIVATE KEY", entry.pkey_pkcs8) + b"".join(_pem("CERTIFICATE", der) for der in chain)


def _password_option(location_option: str) -> str:
    return location_option.replace(".location", ".password")


def files_of(listener: ListenerOptions) -> tuple[str, ...]:
    """The listener's keystore and truststore files."""
    named: tuple[Option[str | None], ...] = (options.SSL_KEYSTORE_LOCATION, options.SSL_TRUSTSTORE_LOCATION)
    return tuple(path for path in map(listener.get, named) if path)
