"""SCRAM-SHA-256 and -512 (RFC 5802, RFC 7677): the exchange, and credentials in the form that Kafka stores for a user.

The exchange is also carried out for users who do not exist, with a salt computed from the name and a secret of the cluster,
and refused at its end like a wrong password, so that neither answers nor their number ever tell whether a user exists.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from barnabas.security.sasl import Outcome, SaslError

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
CODES: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""The mechanisms' numbers in messages of Kafka's protocol."""
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
SALT_BYTES: Final = 32
DIGITS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"
TEXT_SALT_MAX: Final = 1 << 130
"""Kafka's tools use smaller numbers as salts; the longest have 26 digits."""
K = TypeVar("K")


class Credential(NamedTuple):
    """What a broker stores of a password: enough to check it, but not enough to log in."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class Shape(NamedTuple):
    """What a credential shows to any peer before the peer has to prove anything.

    is_text: whether the salt consists of digits and small letters, like those of Kafka's own tools: a random number of 130
    bits, written in base 36.
    """

    iterations: int
    salt_bytes: int
    is_text: bool = False


class Known(NamedTuple):
    """What a login is checked against. exists: False for a stand-in. user, expires_ms: of the Outcome on success."""

    credential: Credential
    exists: bool
    user: str
    expires_ms: int | None = None


def credential_of(mechanism: str, salt: bytes, salted_password: bytes, iterations: int) -> Credential:
    """The credential of a salted password, as RFC 5802 derives it."""
    name = HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    server_key = hmac.digest(salted_password, b"Server Key", name)
    return Credential(salt, hashlib.new(name, client_key).digest(), server_key, iterations)


def new_credential(
    mechanism: str, password: str, salt: bytes, iterations: int = ITERATIONS_MIN
) -> Credential:
    """The credential of a password."""
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)
    return credential_of(mechanism, salt, salted, iterations)


def encode_credential(credential: Credential) -> str:
    """A credential as text, as stored in a config of /config/users/NAME."""

    def text(data: bytes) -> str:
        return base64.b64encode(data).decode()

    return (
        f"salt={text(credential.salt)},stored_key={text(credential.stored_key)},"
        f"server_key={text(credential.server_key)},iterations={credential.iterations}"
    )


def decode_credential(text: str) -> Credential | None:
    """The credential in a text from `encode_credential`; None if it contains none."""
    fields = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    try:
        salt, stored, server = (
            base64.b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
        return Credential(salt, stored, server, int(fields["iterations"]))
    except (KeyError, ValueError, binascii.Error):
        return None


def shape_of(text: str) -> Shape | None:
    """The shape of the credential in a text, quicker than `decode_credential`; None if it contains none."""
    fields = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    iterations = fields.get("iterations", "")
    try:
        salt = base64.b64decode(fields.get("salt", ""), validate=True)
    except ValueError:
        return None
    if not salt or not iterations.isascii() or not iterations.isdigit():
        return None
    return Shape(int(iterations), len(salt), not salt.translate(None, DIGITS))


def stand_in(mechanism: str, user: str, secret: bytes, shapes: Mapping[Shape, int]) -> Credential:
    """The credential for a user who does not exist: always the same for a name, and similar to those of real users.

    secret: with it, stand-ins can be told from real users. shapes: how many users have each shape. The stand-ins have
    the shapes in the same proportion; when users are added or deleted, few names change theirs (weighted rendezvous
    hashing).
    """
    seed = hmac.digest(secret, f"{mechanism}\0{user}".encode(), "sha512")
    shape = draw(seed, shapes, lambda shape: b"shape %d %d %d" % shape)
    if shape is None:
        shape = Shape(ITERATIONS_MIN, SALT_BYTES)
    # A stand-in whose shape changes gets a new salt, like a user, whose shape and salt change with the password.
    salt_seed = seed + b"salt %d %d %d" % shape
    if shape.is_text:
        salt = _text_salt(salt_seed, shape.salt_bytes)
    else:
        salt = hashlib.shake_256(salt_seed).digest(shape.salt_bytes)
    key = hmac.digest(seed, b"key", HASHES[mechanism])
    return Credential(salt, key, key, shape.iterations)


def draw(seed: bytes, counts: Mapping[K, int], label: Callable[[K], bytes]) -> K | None:
    """One of the keys, with a probability in proportion to its count, always the same for a seed; None if there are none.

    label: the bytes by which a key is hashed.
    """

    def rank(item: tuple[bytes, K]) -> float:
        drawn = hmac.digest(seed, item[0], "sha256")
        return counts[item[1]] / -math.log((int.from_bytes(drawn[:6]) + 1) / (2**48 + 2))

    labels = {label(key): key for key in counts}
    return max(sorted(labels.items(), key=lambda item: item[0]), key=rank)[1] if labels else None


def _text_salt(seed: bytes, count: int) -> bytes:
    """A salt of `count` digits, distributed like those of Kafka's tools."""
    least = len(DIGITS) ** (count - 1)
    above = least * len(DIGITS)
    if least < TEXT_SALT_MAX:
        above = min(above, TEXT_SALT_MAX)
    number = least + int.from_bytes(hashlib.shake_256(seed).digest(count + 16)) % (above - least)
    digits = bytearray()
    while number:
        number, digit = divmod(number, len(DIGITS))
        digits.append(DIGITS[digit])
    digits.reverse()
    return bytes(digits)


def split_extensions(text: str) -> tuple[str, str, dict[str, str]]:
    """Split a client's first message: (message without extensions, message without its header, extensions).

    RFC 5802 requires that unknown extensions are ignored, but the library refuses them. Kafka's clients send
    `tokenauth=true`.
    """
    header = ",".join(text.split(",", 2)[:2])
    bare = text[len(header) + 1 :]
    parts = bare.split(",")
    count = next((at + 1 for at, part in enumerate(parts) if part.startswith("r=")), len(parts))
    extensions = dict(part.split("=", 1) for part in parts[count:] if "=" in part)
    return f"{header},{','.join(parts[:count])}", bare, extensions


class Scram:
    """See Exchange. find: (user or id of a token, whether it is a token) -> what the login is checked against."""

    def __init__(self, mechanism: str, find: Callable[[str, bool], Known]) -> None:
        from scramp import ScramMechanism

        self.claimed = ""
        self._mechanism = mechanism
        self._find = find
        self._known: Known | None = None
        self._by_token = False
        self._server: Any = ScramMechanism(mechanism).make_server(self._credential)
        self._has_begun = False

    def _credential(self, user: object) -> tuple[bytes, bytes, bytes, int]:
        self.claimed = str(user)
        self._known = self._find(self.claimed, self._by_token)
        return self._known.credential

    def step(self, token: bytes) -> Outcome:
        from scramp import ScramException

        try:
            text = token.decode("utf-8")
            if not self._has_begun:
                self._has_begun = True
                first, bare, extensions = split_extensions(text)
                self._by_token = extensions.get("tokenauth", "").lower() == "true"
                self._server.set_client_first(first)
                self._server.client_first_bare = bare  # both sides sign it with the extensions
                return Outcome(self._server.get_server_first().encode())
            self._server.set_client_final(text)
            known = self._known
            if known is None or not known.exists:
                raise SaslError(self._refusal())
            proof = self._server.get_server_final().encode()
            return Outcome(proof, known.user, known.expires_ms, self._by_token)
        except (ScramException, UnicodeDecodeError, ValueError):
            raise SaslError(self._refusal()) from None

    def _refusal(self) -> str:
        return (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            f"{self._mechanism}"
        )
