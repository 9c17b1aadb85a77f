"""Verifies signatures: TC3-HMAC-SHA256 for SendMessage, and those of GitHub's and Stripe's web hooks. Pure.

Sources: Tencent Cloud's page "Signature Method v3"; GitHub's "Validating webhook deliveries"; Stripe's "Verify webhook
signatures manually". Digests are computed with the standard library.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

ALGORITHM: Final = "TC3-HMAC-SHA256"
LATE_S: Final = 300
HOOKS: Final = ("github", "stripe")
_AUTHORIZATION: Final = re.compile(
    r"TC3-HMAC-SHA256 Credential=([^/,\s]+)/(\d{4}-\d\d-\d\d)/([\w.-]+)/tc3_request, ?"
    r"SignedHeaders=([\w;.-]+), ?Signature=([0-9a-f]{64})"
)


class BadSignature(Exception):
    """A request is not signed, or its signature is wrong. code: of Tencent Cloud's API."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(message)


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def _same(wanted: str, signature: str) -> bool:
    return hmac.compare_digest(wanted.encode(), signature.encode())


def tc3_signature(
    key: str,
    method: str,
    path: str,
    query: str,
    headers: Mapping[str, str],
    signed: list[str],
    body: bytes,
    timestamp: int,
    service: str,
) -> str:
    """The signature of a request, in hex. headers: names in lower case. signed: names of the headers that it covers."""
    lines = "".join(f"{name}:{headers.get(name, '').strip().lower()}\n" for name in signed)
    digest = hashlib.sha256(body).hexdigest()
    canonical = "\n".join((method, quote(path, safe="/%-_.~"), query, lines, ";".join(signed), digest))
    date = datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%d")
    scope = f"{date}/{service}/tc3_request"
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    signing = _hmac(_hmac(_hmac(f"TC3{key}".encode(), date), service), "tc3_request")
    return _hmac(signing, f"{ALGORITHM}\n{timestamp}\n{scope}\n{hashed}").hex()


def check_tc3(
    secrets: Mapping[str, str],
    method: str,
    path: str,
    query: str,
    headers: Mapping[str, str],
    body: bytes,
    now_s: float,
) -> str:
    """The secret id that signed a request. Raises BadSignature."""
    match = _AUTHORIZATION.fullmatch(headers.get("authorization", "").strip())
    if match is None:
        raise BadSignature("AuthFailure.InvalidAuthorization", f"the request is not signed with {ALGORITHM}")
    secret_id, date, service, names, signature = match.groups()
    stamp = headers.get("x-tc-timestamp", "")
    if not stamp.isascii() or not stamp.isdigit() or len(stamp) > 12:
        raise BadSignature("MissingParameter", "X-TC-Timestamp must be the time in seconds since 1970")
    timestamp = int(stamp)
    if abs(now_s - timestamp) > LATE_S:
        raise BadSignature(
            "AuthFailure.SignatureExpire", f"X-TC-Timestamp is more than {LATE_S} s from the server's time"
        )
    if datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%d") != date:
        raise BadSignature(
            "AuthFailure.SignatureFailure", "the date in Credential is not that of X-TC-Timestamp"
        )
    signed = names.split(";")
    if not {"content-type", "host"} <= set(signed):
        raise BadSignature("AuthFailure.SignatureFailure", "content-type and host have to be signed")
    # An unknown id takes as much time as a wrong key.
    wanted = tc3_signature(
        secrets.get(secret_id, ""), method, path, query, headers, signed, body, timestamp, service
    )
    if not _same(wanted, signature) or secret_id not in secrets:
        raise BadSignature(
            "AuthFailure.SignatureFailure", "the signature does not match the request, or the id is unknown"
        )
    return secret_id


def check_hook(kind: str, secret: str, headers: Mapping[str, str], body: bytes, now_s: float) -> None:
    """Verify the signature of a web hook. kind: github or stripe. headers: names in lower case. Raises BadSignature."""
    if kind == "github":
        signature = headers.get("x-hub-signature-256", "")
        wanted = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        if not _same(wanted, signature):
            raise BadSignature("signature", "X-Hub-Signature-256 does not match the body")
        return
    items = [item.strip().partition("=")[::2] for item in headers.get("stripe-signature", "").split(",")]
    stamp = next((value for name, value in items if name == "t"), "")
    if not stamp.isascii() or not stamp.isdigit() or len(stamp) > 12 or abs(now_s - int(stamp)) > LATE_S:
        raise BadSignature("signature", f"Stripe-Signature has no time within {LATE_S} s of the server's")
    wanted = hmac.new(secret.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    if not any(name == "v1" and _same(wanted, value) for name, value in items):
        raise BadSignature("signature", "Stripe-Signature does not match the body")
