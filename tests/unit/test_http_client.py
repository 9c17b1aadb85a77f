"""Requests to HTTP services: where they go, what comes back, and why nothing does."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from barnabas.http_client import Address, BadAddress, NoAnswer, Service, ask
from tests.support.process import free_port


class Handler(BaseHTTPRequestHandler):
    """Answers with the request line and headers that it got; some paths answer otherwise."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        lines = [self.requestline, *(f"{name}: {value}" for name, value in self.headers.items())]
        body = "\n".join(lines).encode() + b"\n" + self.rfile.read(size)
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/elsewhere")
        else:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body) + (self.path == "/cut")))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = self.path == "/cut"

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        """Nothing on the screen."""


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def url(server: ThreadingHTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_port}"


def test_a_request_arrives_with_path_login_headers_and_body(url: str) -> None:
    address = Address(url.replace("//", "//al%40ice:secret@") + "/base/")
    answer = ask(address, "POST", "/a%2Fb?c=d", b"body", {"user-agent": "mine"}, timeout_s=10)
    assert (answer.status, answer.media_type) == (200, "text/plain")
    lines = answer.body.decode().splitlines()
    assert lines[0] == "POST /base/a%2Fb?c=d HTTP/1.1"
    assert lines[-1] == "body"
    assert "Authorization: Basic YWxAaWNlOnNlY3JldA==" in lines
    assert [line for line in lines if line.lower().startswith("user-agent")] == ["user-agent: mine"]


def test_redirects_and_proxies_of_the_environment_are_not_followed(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ask(Address(url), "GET", "/moved", timeout_s=10).status == 302
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    assert ask(Address(url), "GET", timeout_s=10).status == 200


def test_an_address_is_asked_as_it_is(url: str) -> None:
    assert ask(Address(f"{url}/keys/?v=1"), "GET", timeout_s=10).body.startswith(b"GET /keys/?v=1 HTTP")


def test_an_answer_is_cut_off_at_its_limit(url: str) -> None:
    assert ask(Address(url), "GET", "/x", timeout_s=10, bytes_max=5).body == b"GET /"
    assert ask(Address(url), "GET", "/x", timeout_s=10, bytes_max=0) == (200, b"", "text/plain")


def test_the_port_may_be_left_to_the_service(server: ThreadingHTTPServer) -> None:
    assert ask(Address("http://127.0.0.1", port=server.server_port), "GET", timeout_s=10).status == 200


def test_connections_are_kept_and_opened_again(server: ThreadingHTTPServer, url: str) -> None:
    service = Service(Address(url), timeout_s=10)
    assert [service.ask("GET", "/1").status, service.ask("GET", "/2").status] == [200, 200]
    assert service.pool is not None
    assert service.pool.num_connections == 1
    service.close()
    assert service.ask("GET", "/3").status == 200
    service.close()


def test_why_there_is_no_answer(url: str) -> None:
    nobody = Address(f"http://127.0.0.1:{free_port()}")
    with pytest.raises(NoAnswer, match=r"^Connection refused$") as refused:
        ask(nobody, "GET", timeout_s=10)
    assert refused.value.was_refused
    with pytest.raises(NoAnswer, match=r"^IncompleteRead\(.* 1 more expected\)$") as cut:
        ask(Address(url), "GET", "/cut", timeout_s=10)
    assert not cut.value.was_refused
    with pytest.raises(NoAnswer, match="WRONG_VERSION_NUMBER"):
        ask(Address(url.replace("http:", "https:")), "GET", timeout_s=10)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(NoAnswer, match=r"^timed out$"):
        ask(Address(f"http://127.0.0.1:{silent.getsockname()[1]}"), "GET", timeout_s=0.2)


@pytest.mark.parametrize(
    "url", ["", "host:8081", "ftp://host", "http://", "http://host:99999", "file:///etc/passwd"]
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(BadAddress):
        ask(Address(url), "GET", timeout_s=1)


def test_a_certificate_is_verified_as_the_context_says(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=other", "-addext", "subjectAltName=DNS:other", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"https://127.0.0.1:{server.server_port}"
    try:
        with pytest.raises(NoAnswer, match="self-signed"):
            ask(Address(url), "GET", timeout_s=10)
        trusting = ssl.create_default_context(cafile=str(certificate))
        with pytest.raises(NoAnswer, match=r"127\.0\.0\.1"):
            ask(Address(url, trusting), "GET", timeout_s=10)
        trusting.check_hostname = False
        assert ask(Address(url, trusting), "GET", timeout_s=10).status == 200
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("url", ["http://[::1]", "https://[::1]"])
def test_an_address_of_ipv6_without_a_port(url: str) -> None:
    with pytest.raises(NoAnswer, match=r"^(Connection refused|Cannot assign requested address)$"):
        ask(Address(url), "GET", timeout_s=10)
