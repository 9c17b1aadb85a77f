"""Which requests of browsers are refused: all combinations of names, origins and what the service asks for."""

from __future__ import annotations

import socket
from itertools import product
from typing import Any

import pytest

from barnabas.http.errors import HttpError
from barnabas.http.visitors import Visitors, refuse_form

OWN = ("127.0.0.1:8081", "localhost:8081", "[::1]:8081", "192.168.1.7", "registry:8081", "schemas1.example.com:8081",
       "localhost.:8081", "a.b.example.org", "registry.default.svc.cluster.local", socket.gethostname())  # fmt: skip
FOREIGN = ("evil.example:8081", "127.0.0.1.evil.example", "localhost.evil.example", "example.org", "evilexample.org",
           "schemas1.example.com.evil.example", "a@b.evil.example", "evil.example:8081:1", "")  # fmt: skip
NAMES = ("schemas1.example.com", "*.example.org")


def accepts(visitors: Visitors, path: str = "/subjects", method: str = "GET", **headers: str) -> bool:
    rows = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope: Any = {"type": "http", "method": method, "path": path, "headers": rows}
    try:
        visitors.check(scope)
    except HttpError as error:
        if error.status != 403:
            raise
        return False
    return True


@pytest.mark.parametrize("any_name", [False, True])
@pytest.mark.parametrize("host", OWN + FOREIGN)
def test_names_that_strangers_may_register_are_refused(host: str, any_name: bool) -> None:
    """With TLS or a login, a page that was loaded under a foreign name gets nowhere anyway."""
    assert accepts(Visitors((), NAMES, any_name=any_name), host=host) == (any_name or host in OWN)


def test_programs_need_no_origin_and_no_host() -> None:
    assert accepts(Visitors(), method="POST")
    assert accepts(Visitors((), ("*",)), host="anything.example")
    assert accepts(Visitors(("*",)), host="anything.example", origin="http://evil.example")


@pytest.mark.parametrize(
    ("host", "origin", "same"),
    [
        ("localhost:8081", "http://localhost:8081", True),
        ("localhost", "http://localhost", True),
        ("localhost:80", "http://localhost", True),
        ("localhost", "https://localhost:443", True),
        ("[::1]:8081", "http://[::1]:8081", True),
        ("localhost:8081", "https://localhost:8081", True),
        ("localhost:8081", "http://localhost:8082", False),
        ("localhost:8081", "http://127.0.0.1:8081", False),
        ("localhost:8081", "http://evil.example", False),
        ("localhost:8081", "http://localhost:8081.evil.example", False),
        ("localhost:8081", "http://localhost:99999", False),
        ("localhost:8081", "null", False),
        ("localhost:8081", "", False),
        ("", "null", False),
        ("evil.example:8081", "http://evil.example:8081", False),
    ],
)
def test_only_pages_of_the_service_itself_may_call(host: str, origin: str, same: bool) -> None:
    for method, name in product(("GET", "POST", "OPTIONS"), (host, host.upper())):
        assert accepts(Visitors(), method=method, host=name, origin=origin) == same


def test_only_named_pages_of_others_may_call() -> None:
    visitors = Visitors(("http://app.example:3000/",))
    for any_name in (False, True):
        visitors = Visitors(("http://app.example:3000/",), any_name=any_name)
        assert accepts(
            visitors, host="localhost", origin="http://app.example:3000", sec_fetch_site="cross-site"
        )
        assert not accepts(
            visitors, host="localhost", origin="http://app.example", sec_fetch_site="cross-site"
        )
        assert not accepts(visitors, host="localhost", origin="https://app.example:3000")
        assert not accepts(visitors, host="localhost", sec_fetch_site="cross-site", sec_fetch_mode="no-cors")


def test_images_and_forms_of_other_sites_are_refused_and_links_to_pages_are_not() -> None:
    for site in ("cross-site", "same-site"):
        assert not accepts(Visitors(), host="localhost", sec_fetch_site=site, sec_fetch_mode="no-cors")
        assert not accepts(Visitors(), host="localhost", sec_fetch_site=site, sec_fetch_mode="navigate")
        assert accepts(Visitors(), "/docs", host="localhost", sec_fetch_site=site, sec_fetch_mode="navigate")
        assert not accepts(
            Visitors(), "/docs", "POST", host="localhost", sec_fetch_site=site, sec_fetch_mode="navigate"
        )
    for site in ("same-origin", "none"):
        assert accepts(Visitors(), host="localhost", sec_fetch_site=site, sec_fetch_mode="navigate")


def test_the_full_name_of_the_machine_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getfqdn", lambda: "Box.Corp.Example")
    visitors = Visitors()
    visitors.look_up()
    assert visitors.knows("box.corp.example:8081")
    assert not visitors.knows("corp.example:8081")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_forms_are_refused(method: str) -> None:
    for media_type in ("text/plain", "Application/X-WWW-Form-urlencoded", "multipart/form-data; boundary=a"):
        scope: Any = {"method": method, "headers": [(b"content-type", media_type.encode())]}
        with pytest.raises(HttpError, match="is not accepted here; send application/json") as refused:
            refuse_form(scope, "application/json")
        assert refused.value.status == 415
    for rows in ([], [(b"content-type", b"application/json; charset=utf-8")]):
        refuse_form({"method": method, "headers": rows}, "application/json")
