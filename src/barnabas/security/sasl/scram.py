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
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple, TypeVar

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


class CredentialForm(NamedTuple):
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


def shape_of(text: str) -> CredentialForm | None:
    """The shape of the credential in a text, quicker than `decode_credential`; None if it contains none."""
    fields = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    iterations = fields.get("iterations", "")
    try:
        salt = base64.b64decode(fields.get("salt", ""), validate=True)
    except ValueError:
        return None
    if not salt or not iterations.isascii() or not iterations.isdigit():
        return None
    return CredentialForm(int(iterations), len(salt), not salt.translate(None, DIGITS))


def stand_in(mechanism: str, user: str, secret: bytes, shapes: Mapping[CredentialForm, int]) -> Credential:
    """The credential for a user who does not exist: always the same for a name, and similar to those of real users.

    secret: with it, stand-ins can be told from real users. shapes: how many users have each shape. The stand-ins have
    the shapes in the same proportion; when users are added or deleted, few names change theirs (weighted rendezvous
    hashing).
    """
    seed = hmac.digest(secret, f"{mechanism}\0{user}".encode(), "sha512")
    shape = draw(seed, shapes, lambda shape: b"shape %d %d %d" % shape)
    if shape is None:
        shape = CredentialForm(ITERATIONS_MIN, SALT_BYTES)
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


# --- the exchange ----------------------------------------------------------------------------------------------------

MESSAGE_BYTES_MAX: Final = 4096
"""Of each message of a client. Clients send 50 to 300."""
NAME_BYTES_MAX: Final = 512
"""Of a user's name, or a token's id, as it is sent."""
NONCE_BYTES: Final = 32
_NONCE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS: Final = r"(?:,[A-Za-z]+=[^,\0]+)*"
FIRST: Final = re.compile(
    rf"(?P<header>[ny],(?:a=(?P<other>[^,\0]+))?,)"
    rf"(?P<bare>n=(?P<name>[^,\0]+),r=(?P<nonce>{_NONCE})(?P<extensions>{_EXTENSIONS}))"
)
FINAL: Final = re.compile(
    rf"(?P<unproved>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>[A-Za-z0-9+/=]+)"
)
BY_TOKEN: Final = re.compile(r",tokenauth=true(?:,|$)", re.IGNORECASE)
ESCAPE: Final = re.compile(r"=(?!2C|3D)")


class First(NamedTuple):
    """A client's first message. header: before the bare message, which both sides sign. nonce: the client's part."""

    header: str
    bare: str
    user: str
    nonce: str
    by_token: bool


def read_first(token: bytes) -> First:
    """A client's first message. Raises ValueError.

    A long message is refused before anything is done with it: the client has not shown yet who it is. Names are compared
    byte by byte, as in Kafka, which does not prepare them (RFC 4013): a prepared name can be eighteen times as long.
    Extensions are ignored, as RFC 5802 requires; Kafka's clients send `tokenauth=true`. The client may name the user a
    second time, as the one to act for; nobody acts for anybody else.
    """
    match = FIRST.fullmatch(_text(token))
    if match is None:
        raise ValueError("not a first message")
    user = unescaped(match["name"])
    if match["other"] is not None and unescaped(match["other"]) != user:
        raise ValueError("the user to act for is another one")
    by_token = BY_TOKEN.search(match["extensions"]) is not None
    return First(match["header"], match["bare"], user, match["nonce"], by_token)


def unescaped(name: str) -> str:
    """A name without its escapes, which stand for "," and "=". Raises ValueError."""
    if len(name.encode()) > NAME_BYTES_MAX or ESCAPE.search(name):
        raise ValueError("not a name")
    return name.replace("=2C", ",").replace("=3D", "=")


def _text(token: bytes) -> str:
    if len(token) > MESSAGE_BYTES_MAX:
        raise ValueError(f"a message of {len(token)} bytes")
    return token.decode()


class Scram:
    """See Exchange. find: (user or id of a token, whether it is a token) -> what the login is checked against."""

    def __init__(self, mechanism: str, find: Callable[[str, bool], Known | Awaitable[Known]]) -> None:
        self.claimed = ""
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._find = find
        self._first: First | None = None
        self._known: Known | None = None
        self._nonce = self._server_first = ""

    def step(self, token: bytes) -> Outcome | Awaitable[Outcome]:
        try:
            if self._first is not None:
                return self._end(self._first, FINAL.fullmatch(_text(token)))
            self._first = first = read_first(token)
        except ValueError:
            raise SaslError(self._refusal()) from None
        self.claimed = first.user
        known = self._find(first.user, first.by_token)
        return self._begin(first, known) if isinstance(known, Known) else self._begin_later(first, known)

    async def _begin_later(self, first: First, known: Awaitable[Known]) -> Outcome:
        return self._begin(first, await known)

    def _begin(self, first: First, known: Known) -> Outcome:
        self._known = known
        self._nonce = first.nonce + secrets.token_hex(NONCE_BYTES)
        salt = base64.b64encode(known.credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={known.credential.iterations}"
        return Outcome(self._server_first.encode())

    def _end(self, first: First, final: re.Match[str] | None) -> Outcome:
        """Check the client's proof. Raises SaslError, and ValueError for a message that is malformed."""
        known, self._known = self._known, None
        if final is None or known is None:
            raise ValueError("not a final message")
        binding, proof = (base64.b64decode(final[name], validate=True) for name in ("binding", "proof"))
        stored, server_key = known.credential.stored_key, known.credential.server_key
        signed = f"{first.bare},{self._server_first},{final['unproved']}".encode()
        signature = hmac.digest(stored, signed, self._hash)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        is_right = hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), stored)
        is_whole = binding == first.header.encode() and final["nonce"] == self._nonce
        if not (is_right and is_whole and known.exists):
            raise SaslError(self._refusal())
        verifier = base64.b64encode(hmac.digest(server_key, signed, self._hash))
        return Outcome(b"v=" + verifier, known.user, known.expires_ms, first.by_token)

    def _refusal(self) -> str:
        return (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            f"{self._mechanism}"
        )
