"""Addresses with a login: it is sent, and shown nowhere."""

from __future__ import annotations

import base64
from urllib.parse import urlsplit

import pytest

from barnabas.http_client import login_of, without_login


@pytest.mark.parametrize(
    ("url", "login"),
    [
        ("http://alice:secret@h:1", b"alice:secret"),
        ("http://al%3Aice:p%40ss%2Fword@h", b"al:ice:p@ss/word"),
        ("http://alice@h", b"alice:"),
        ("http://%C3%A4:%C3%B6@h", "ä:ö".encode()),
    ],
)
def test_the_login_of_an_address(url: str, login: bytes) -> None:
    assert login_of(urlsplit(url)) == {"Authorization": "Basic " + base64.b64encode(login).decode()}


def test_an_address_without_a_login_sends_none() -> None:
    assert login_of(urlsplit("https://h:8081/path")) == {}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://alice:secret@h:8081/a", "https://h:8081/a"),
        ("http://alice:s@cret@h", "http://h"),
        ("alice:secret@h:8081", "h:8081"),
        ("http://h:8081", "http://h:8081"),
    ],
)
def test_what_messages_show(url: str, shown: str) -> None:
    assert without_login(url) == shown
