"""The format of dynamic passwords in the metadata tree: encrypted with `password.encoder.secret`, in Kafka's own form.

    keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/CBC/PKCS5Padding,keyLength:128,iterations:4096,
    salt:BASE64,initializationVector:BASE64,passwordLength:6,encryptedPassword:BASE64

Each text has its own salt, so that equal passwords do not look equal. Source: Kafka's EncryptingPasswordEncoder.java.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from barnabas.config import broker_security as options
from barnabas.config.option import ConfigError, refused
from barnabas.extras import how_to_install

if TYPE_CHECKING:
    from barnabas.config.loader import BrokerConfig

CIPHER: Final = "AES/CBC/PKCS5Padding"
KEY_FACTORY: Final = "PBKDF2WithHmacSHA512"
KEY_FACTORIES: Final = {
    KEY_FACTORY: "sha512", "PBKDF2WithHmacSHA256": "sha256", "PBKDF2WithHmacSHA1": "sha1",
}  # fmt: skip
KEY_BITS: Final = (128, 192, 256)
SALT_BYTES: Final = 256
BLOCK_BYTES: Final = 16
MARK: Final = "encryptedPassword:"


class CannotDecrypt(ValueError):
    """A text was encrypted with another secret, or is damaged. The message says nothing about its contents."""


class PasswordEncoder:
    """Encrypts and decrypts with one secret. iterations, key_bits: for new texts; existing texts contain their own."""

    def __init__(self, secret: str, iterations: int = 4096, key_bits: int = 128) -> None:
        self._secret = secret.encode()
        self._iterations = iterations
        self._key_bits = key_bits

    def encode(self, password: str, random: Callable[[int], bytes] = secrets.token_bytes) -> str:
        """The encrypted text. Raises ConfigError if the library is missing."""
        if self._key_bits not in KEY_BITS:
            raise refused(
                options.PASSWORD_ENCODER_KEY_LENGTH.name, str(self._key_bits), "must be 128, 192 or 256"
            )
        salt, vector = random(SALT_BYTES), random(BLOCK_BYTES)
        cipher, padding = _library()
        key = self._key(KEY_FACTORY, salt, self._iterations, self._key_bits)
        padder, sealing = padding(), cipher(key, vector).encryptor()
        data = password.encode()
        sealed = sealing.update(padder.update(data) + padder.finalize()) + sealing.finalize()
        fields = {
            "keyFactoryAlgorithm": KEY_FACTORY,
            "cipherAlgorithm": CIPHER,
            "keyLength": str(self._key_bits),
            "iterations": str(self._iterations),
            "salt": _text(salt),
            "initializationVector": _text(vector),
            "passwordLength": str(_java_length(password)),
            "encryptedPassword": _text(sealed),
        }
        return ",".join(f"{name}:{value}" for name, value in fields.items())

    def decode(self, text: str) -> str:
        """The password. Raises CannotDecrypt, and ConfigError if the library is missing."""
        cipher, padding = _library(unpads=True)
        try:
            fields = dict(part.split(":", 1) for part in text.split(","))
            if fields["cipherAlgorithm"] != CIPHER:
                raise CannotDecrypt(f"it is encrypted with {fields['cipherAlgorithm'][:64]}, not {CIPHER}")
            salt, vector, sealed = (
                base64.b64decode(fields[name], validate=True)
                for name in ("salt", "initializationVector", "encryptedPassword")
            )
            iterations, length = int(fields["iterations"]), int(fields["passwordLength"])
            if iterations > options.ENCODER_ITERATIONS_MAX:
                raise CannotDecrypt(
                    f"its key derivation takes more than {options.ENCODER_ITERATIONS_MAX} iterations"
                )
            key = self._key(fields["keyFactoryAlgorithm"], salt, iterations, int(fields["keyLength"]))
            unpadder, opening = padding(), cipher(key, vector).decryptor()
            padded = opening.update(sealed) + opening.finalize()
            password = bytes(unpadder.update(padded) + unpadder.finalize()).decode()
        except CannotDecrypt:
            raise
        except (KeyError, ValueError, OverflowError):
            raise CannotDecrypt(
                "it was encrypted with another password.encoder.secret, or is damaged"
            ) from None
        if length not in (_java_length(password), len(password)):
            raise CannotDecrypt("it was encrypted with another password.encoder.secret, or is damaged")
        return password

    def _key(self, factory: str, salt: bytes, iterations: int, key_bits: int) -> bytes:
        if factory not in KEY_FACTORIES:
            raise CannotDecrypt(f"its key is derived with {factory[:64]}, which is not supported")
        return hashlib.pbkdf2_hmac(KEY_FACTORIES[factory], self._secret, salt, iterations, key_bits // 8)


class Passwords:
    """Encrypts and decrypts the passwords among a broker's dynamic options. The old secret is only used for decryption."""

    def __init__(self, config: BrokerConfig) -> None:
        secret, old = (
            config.get(option)
            for option in (options.PASSWORD_ENCODER_SECRET, options.PASSWORD_ENCODER_OLD_SECRET)
        )
        shape = (
            config.get(options.PASSWORD_ENCODER_ITERATIONS),
            config.get(options.PASSWORD_ENCODER_KEY_LENGTH),
        )
        self._encoder = PasswordEncoder(secret, *shape) if secret else None
        self._old = PasswordEncoder(old) if old else None
        self._known: dict[str, tuple[str, bool] | str] = {}
        """By text in the tree: (password, whether the current secret encrypts it), or why it cannot be decrypted."""

    def encode(self, name: str, password: str) -> str:
        """The encrypted text. Raises ConfigError without a secret."""
        if self._encoder is None:
            raise ConfigError(
                f"{name} is a secret, and would be stored in plain text in the metadata tree: set "
                "password.encoder.secret in this broker's properties first"
            )
        text = self._encoder.encode(password)
        if self._encoder.decode(text) != password:
            raise ConfigError(f"{name} cannot be encrypted so that it can be decrypted again")
        return text

    @property
    def can_encode(self) -> bool:
        """Whether password.encoder.secret is set."""
        return self._encoder is not None

    def decode(self, text: str) -> str:
        """The password in an encrypted text, or in one that was stored in plain text. Raises CannotDecrypt."""
        return self._opened(text)[0]

    def is_fresh(self, text: str) -> bool:
        """False if a text should be encrypted again with the current secret; True if it already is, or cannot be."""
        try:
            return self._encoder is None or self._opened(text)[1]
        except CannotDecrypt:
            return True

    def _opened(self, text: str) -> tuple[str, bool]:
        known = self._known.get(text)
        if known is None:
            try:
                known = self._open(text)
            except (
                CannotDecrypt
            ) as error:  # the result will be the same next time, and each attempt derives keys
                known = str(error)
            self._known[text] = known
        if isinstance(known, str):
            raise CannotDecrypt(known)
        return known

    def _open(self, text: str) -> tuple[str, bool]:
        if not is_encrypted(text):
            return text, False
        failed = CannotDecrypt("it is encrypted, and this broker has no password.encoder.secret")
        for encoder, is_fresh in ((self._encoder, True), (self._old, False)):
            if encoder is not None:
                try:
                    return encoder.decode(text), is_fresh
                except CannotDecrypt as error:
                    failed = error
        raise failed


def is_encrypted(text: str) -> bool:
    """Whether a password in the tree is encrypted."""
    return MARK in text


def _java_length(text: str) -> int:
    """The length of a text in Java, which counts UTF-16 units."""
    return len(text.encode("utf-16-le")) // 2


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _library(*, unpads: bool = False) -> tuple[Any, Any]:
    """(function that creates the cipher from key and vector, function that creates the padder). Raises ConfigError."""
    try:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
        from cryptography.hazmat.primitives.padding import PKCS7
    except ImportError:
        raise ConfigError(f"password.encoder.secret needs {how_to_install('security')}") from None
    padding = PKCS7(BLOCK_BYTES * 8)
    return (
        lambda key, vector: Cipher(algorithms.AES(key), modes.CBC(vector)),
        padding.unpadder if unpads else padding.padder,
    )
