"""Reporting: who signed a request, and which records a body holds."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import asdict
from typing import Any

import pytest

from barnabas.proxy.reporting import points
from barnabas.proxy.reporting.bodies import BadBody, Message, messages_in
from barnabas.proxy.reporting.signatures import BadSignature, check_hook, check_tc3, tc3_signature

NOW = 1_551_113_065
SECRETS = {"AKIDtest": "key"}
BODY = b'{"DataHubId": "d"}'


def signed(
    body: bytes = BODY, key: str = "key", at: int = NOW, names: str = "content-type;host"
) -> dict[str, str]:
    headers = {"content-type": "application/json", "host": "reporting.example", "x-tc-timestamp": str(at)}
    signature = tc3_signature(key, "POST", "/", "", headers, names.split(";"), body, at, "ckafka")
    scope = "AKIDtest/2019-02-25/ckafka/tc3_request"
    value = f"TC3-HMAC-SHA256 Credential={scope}, SignedHeaders={names}, Signature={signature}"
    return {**headers, "authorization": value}


def check(headers: dict[str, str], body: bytes = BODY, now_s: float = NOW) -> str:
    return check_tc3(SECRETS, "POST", "/", "", headers, body, now_s)


def test_a_signed_request() -> None:
    assert check(signed()) == "AKIDtest"
    assert check(signed(), now_s=NOW + 299) == "AKIDtest"


@pytest.mark.parametrize(
    ("headers", "body", "now_s", "code"),
    [
        (signed(), BODY + b" ", NOW, "AuthFailure.SignatureFailure"),
        (signed(key="other"), BODY, NOW, "AuthFailure.SignatureFailure"),
        (signed() | {"host": "elsewhere"}, BODY, NOW, "AuthFailure.SignatureFailure"),
        (signed(names="content-type"), BODY, NOW, "AuthFailure.SignatureFailure"),
        (signed(), BODY, NOW + 301, "AuthFailure.SignatureExpire"),
        (signed() | {"x-tc-timestamp": "x"}, BODY, NOW, "MissingParameter"),
        (signed() | {"x-tc-timestamp": str(NOW + 1)}, BODY, NOW, "AuthFailure.SignatureFailure"),
        (signed() | {"authorization": "Bearer x"}, BODY, NOW, "AuthFailure.InvalidAuthorization"),
        ({}, BODY, NOW, "AuthFailure.InvalidAuthorization"),
    ],
)
def test_requests_that_are_not_signed_as_they_must_be(
    headers: dict[str, str], body: bytes, now_s: float, code: str
) -> None:
    with pytest.raises(BadSignature) as caught:
        check(headers, body, now_s)
    assert caught.value.code == code


def test_an_id_that_is_not_known_is_not_signed_with_an_empty_key() -> None:
    headers = signed(key="")
    headers["authorization"] = headers["authorization"].replace("AKIDtest", "AKIDother")
    with pytest.raises(BadSignature):
        check(headers)


def test_a_web_hook_of_github() -> None:
    # The example of GitHub's page on validating deliveries.
    headers = {
        "x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    }
    secret = "It's a Secret to Everybody"
    check_hook("github", secret, headers, b"Hello, World!", NOW)
    for wrong in (
        ("github", secret, headers, b"Hello"),
        ("github", "x", headers, b"Hello, World!"),
        ("github", secret, {}, b""),
    ):
        with pytest.raises(BadSignature):
            check_hook(*wrong, NOW)


def test_a_web_hook_of_stripe() -> None:
    def header(stamp: int, secret: str = "whsec") -> dict[str, str]:
        digest = hmac.new(secret.encode(), f"{stamp}.{{}}".encode(), hashlib.sha256).hexdigest()
        return {"stripe-signature": f"t={stamp},v1={'0' * 64},v1={digest},v0=x"}

    check_hook("stripe", "whsec", header(NOW), b"{}", NOW + 299)
    for headers, now_s in ((header(NOW), NOW + 301), (header(NOW, "x"), NOW), ({}, NOW)):
        with pytest.raises(BadSignature):
            check_hook("stripe", "whsec", headers, b"{}", now_s)


EVENT: dict[str, Any] = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "partitionkey": "k"}
CE = {f"ce-{name}": value for name, value in EVENT.items()}


def test_lines_and_whole_values() -> None:
    assert messages_in("", {}, b'{"a":1}\n\n 5 \r\n', None) == [
        Message(None, b'{"a":1}'),
        Message(None, b"5"),
    ]
    assert messages_in("application/json", {}, b'{\n "a": 1\n}\n', "k") == [Message(b"k", b'{\n "a": 1\n}')]


def test_cloud_events() -> None:
    raw = json.dumps(EVENT).encode()
    kind = "application/cloudevents+json"
    assert messages_in(kind, {}, raw, None) == [Message(b"k", raw, (("content-type", kind.encode()),))]
    batch = messages_in("application/cloudevents-batch+json", {}, b"[" + raw + b"," + raw + b"]", None)
    assert [json.loads(message.value or b"") for message in batch] == [EVENT, EVENT]
    headers = {"content-type": "text/plain", **CE, "ce-subject": "caf%C3%A9"}
    (message,) = messages_in("text/plain", headers, b"hi", None)
    assert (message.key, message.value) == (b"k", b"hi")
    by_name = dict(message.headers)
    assert (by_name["ce_id"], by_name["ce_subject"], by_name["content-type"]) == (
        b"1",
        "café".encode(),
        b"text/plain",
    )


@pytest.mark.parametrize(
    ("kind", "headers", "body"),
    [
        ("", {}, b""),
        ("", {}, b"{bad"),
        ("", {}, b'{"a":1}\n{"a":'),
        ("application/cloudevents+json", {}, b"{}"),
        ("application/cloudevents+json", {}, b"[]"),
        ("application/cloudevents+json", {}, json.dumps(EVENT | {"specversion": "0.3"}).encode()),
        ("application/cloudevents+json", {}, json.dumps(EVENT | {"data_base64": "?"}).encode()),
        ("application/cloudevents-batch+json", {}, b"[]"),
        ("text/plain", {"ce-specversion": "1.0"}, b"x"),
    ],
)
def test_bodies_without_records(kind: str, headers: dict[str, str], body: bytes) -> None:
    with pytest.raises(BadBody):
        messages_in(kind, headers, body, None)


@pytest.mark.parametrize(
    "value",
    [
        b"no JSON",
        b"[]",
        b'{"id": "datahub-1"}',
        b'{"id": "datahub-1", "name": "n", "topic": 7}',
        b'{"id": "datahub-1", "name": "n", "topic": "t", "created_ms": "yesterday"}',
        b'{"id": "datahub-1", "name": "n", "topic": "t", "paused": "no"}',
        b'{"id": "datahub-2", "name": "n", "topic": "t"}',
        b'{"id": "datahub-1", "name": "\\ud800", "topic": "t"}',
        b"[" * 100_000,
    ],
)
def test_an_access_point_that_others_wrote_badly(value: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (any text)
        points.read_point("datahub-1", value)


def test_an_access_point_as_it_is_written() -> None:
    point = points.Point("datahub-1", "n", "t", True, 7)
    assert points.read_point("datahub-1", json.dumps(asdict(point)).encode()) == point
