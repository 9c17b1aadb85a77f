"""Tokens of an identity provider: `barnabas.admin`, the blocking client and librdkafka fetch them by the same options."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from barnabas.admin import Admin
from barnabas.cli.main import run
from barnabas.client import oidc
from barnabas.client.blocking import BlockingClient
from barnabas.client.errors import AuthenticationFailed, ClientError, CredentialsRefused
from barnabas.client.options import ClientOptions
from barnabas.terminal.connection import ClusterAddress
from barnabas.testing import Broker
from tests.security.certificates import Certificates
from tests.security.issuer import Issuer


class Provider:
    """A token endpoint. asked: the forms it got. answers: what it gives next, before tokens of `issuer`."""

    def __init__(self, issuer: Issuer) -> None:
        self.issuer = issuer
        self.asked: list[dict[str, list[str]]] = []
        self.answers: list[tuple[int, Any]] = []
        self.life_s = 3600

    def answer(self, authorization: str, form: dict[str, list[str]]) -> tuple[int, Any]:
        self.asked.append(form)
        if self.answers:
            return self.answers.pop(0)
        if authorization != f"Basic {base64.b64encode(b'me:s3cret').decode()}":
            return 401, {"error": "invalid_client", "error_description": "no such client"}
        return 200, {"access_token": self.issuer.token(), "token_type": "Bearer", "expires_in": self.life_s}


@contextmanager
def served(provider: Provider, context: ssl.SSLContext | None = None) -> Iterator[str]:
    """The address of the provider."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            status, body = provider.answer(self.headers["Authorization"], form)
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"{'http' if context is None else 'https'}://localhost:{server.server_port}/token?v=2"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def provider(issuer: Issuer) -> Provider:
    return Provider(issuer)


@pytest.fixture
def options(secured: Broker, provider: Provider) -> Iterator[dict[str, str]]:
    with served(provider) as url:
        yield {
            "bootstrap.servers": f"127.0.0.1:{secured.ports['SASL']}", "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.client.id": "me",
            "sasl.oauthbearer.client.secret": "s3cret", "sasl.oauthbearer.token.endpoint.url": url,
        }  # fmt: skip


def test_all_clients_log_in_by_the_same_options(options: dict[str, str], provider: Provider) -> None:
    options["sasl.oauthbearer.scope"] = "kafka.use more"
    options["sasl.oauthbearer.extensions"] = "traceId=123,team=a"
    with Admin(options) as admin:
        assert admin.topics.list() == {}
    with BlockingClient(ClientOptions.from_kafka(options)) as client:
        assert client.topics() == {}
    assert provider.asked == [{"grant_type": ["client_credentials"], "scope": ["kafka.use more"]}], (
        "one token for both"
    )
    connection = ClusterAddress(options.pop("bootstrap.servers"), options)
    assert connection.producer({}).list_topics(timeout=30).topics == {}
    assert provider.asked[1:] == provider.asked[:1], "librdkafka asks for the same"


def test_a_command_of_administration(options: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    where = options.pop("bootstrap.servers")
    login = [word for name, value in options.items() for word in ("-X", f"{name}={value}")]
    assert run(["topic", "create", "oidc-topic", "-b", where, *login]) == 0
    assert run(["topic", "delete", "oidc-topic", "-b", where, *login]) == 0
    assert run(["topic", "list", "-b", where, *login, "-X", "sasl.oauthbearer.client.secret=wrong"]) == 1
    complaint = capsys.readouterr().err.splitlines()[-1]
    assert "gives the client me no token: invalid_client: no such client (status 401); check" in complaint
    assert "wrong" not in complaint


def test_the_options_of_java(options: dict[str, str]) -> None:
    """Kafka's own names: the address alone, with the client in the line of JAAS."""
    for name in ("method", "client.id", "client.secret"):
        del options[f"sasl.oauthbearer.{name}"]
    options["sasl.login.callback.handler.class"] = "org.apache.kafka.OAuthBearerLoginCallbackHandler"
    options["sasl.jaas.config"] = (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'clientId="me" clientSecret="s3cret" scope="kafka.use";'
    )
    with Admin(options) as admin:
        assert admin.topics.list() == {}
    connection = ClusterAddress(options.pop("bootstrap.servers"), options)
    assert connection.producer({}).list_topics(timeout=30).topics == {}


def test_a_token_is_replaced_before_it_expires(
    options: dict[str, str], provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.life_s = 100
    fetched = ClientOptions.from_kafka(options).sasl
    assert fetched is not None
    first = fetched.bearer()
    now = oidc.time.monotonic()
    monkeypatch.setattr(oidc.time, "monotonic", lambda: now + 75)
    assert fetched.bearer() == first
    monkeypatch.setattr(oidc.time, "monotonic", lambda: now + 85)
    provider.answers = [(200, {"access_token": "another", "expires_in": 100})]
    assert fetched.bearer() == "another"
    assert len(provider.asked) == 2


def test_a_token_that_a_broker_refuses_is_not_kept(options: dict[str, str], provider: Provider) -> None:
    provider.answers = [(200, {"access_token": provider.issuer.token(aud="elsewhere"), "expires_in": 100})]
    with Admin(options) as admin, pytest.raises(CredentialsRefused, match="invalid_token"):
        admin.topics.list()
    with Admin(options) as admin:
        assert admin.topics.list() == {}


def test_a_busy_provider_is_asked_again(
    options: dict[str, str], provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "PAUSE_S", 0.01)
    provider.answers = [(503, b"busy"), (429, b"")]
    with Admin(options) as admin:
        assert admin.topics.list() == {}
    assert len(provider.asked) == 3


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((200, b"<html>"), "does not answer as a token endpoint does"),
        ((200, {"access_token": ""}), "does not answer as a token endpoint does"),
        ((200, {"access_token": "a\nb"}), "does not answer as a token endpoint does"),
        ((200, ["x"]), "does not answer as a token endpoint does"),
        ((302, b""), "no token: no reason \\(status 302\\)"),
        ((400, {"error": "invalid_scope"}), "no token: invalid_scope \\(status 400\\)"),
    ],
)
def test_answers_without_a_token(
    options: dict[str, str], provider: Provider, answer: Any, reason: str
) -> None:
    provider.answers = [answer]
    with Admin(options) as admin, pytest.raises(AuthenticationFailed, match=reason):
        admin.topics.list()


def test_no_provider_answers(options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oidc, "PAUSE_S", 0.01)
    options["sasl.oauthbearer.token.endpoint.url"] = "http://me:pw@127.0.0.1:1/"
    with (
        Admin(options) as admin,
        pytest.raises(AuthenticationFailed, match="no token can be fetched") as raised,
    ):
        admin.topics.list()
    assert "pw" not in str(raised.value)


def test_the_certificate_of_the_provider(
    options: dict[str, str], provider: Provider, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "PAUSE_S", 0.01)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.file("server-store.pem"))
    with served(provider, context) as url:
        options["sasl.oauthbearer.token.endpoint.url"] = url
        with (
            Admin(options) as admin,
            pytest.raises(AuthenticationFailed, match=r"check .* https.ca.location"),
        ):
            admin.topics.list()
        for name, value in (
            ("https.ca.location", certificates.file("ca.pem")),
            ("https.ca.pem", Path(certificates.file("ca.pem")).read_text()),
        ):
            with Admin({**options, name: value}) as admin:
                assert admin.topics.list() == {}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"sasl.oauthbearer.client.id": ""}, "sasl.oauthbearer.client.id is not set"),
        ({"sasl.oauthbearer.client.secret": ""}, "sasl.oauthbearer.client.secret is not set"),
        ({"sasl.oauthbearer.method": "oicd"}, "is not one of default, oidc"),
        ({"sasl.oauthbearer.token.endpoint.url": "file:///x"}, "needs the http"),
        ({"sasl.oauthbearer.grant.type": "password"}, "use client_credentials"),
        ({"sasl.oauthbearer.metadata.authentication.type": "azure_imds"}, "is not supported here"),
        ({"sasl.oauthbearer.method": "default"}, "tokens come from a file"),
    ],
)
def test_options_that_do_not_fit(changed: dict[str, str], reason: str) -> None:
    own_options = {
        "bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.client.id": "me", "sasl.oauthbearer.client.secret": "s3cret",
        "sasl.oauthbearer.token.endpoint.url": "http://localhost:1",
    }  # fmt: skip
    with pytest.raises(ClientError, match=reason):
        ClientOptions.from_kafka(own_options | changed)


def test_secrets_are_not_shown(options: dict[str, str]) -> None:
    assert "s3cret" not in repr(ClientOptions.from_kafka(options))
