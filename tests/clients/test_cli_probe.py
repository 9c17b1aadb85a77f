"""The wrong port, the wrong protocol and no network: said within two seconds, and for what it is."""

from __future__ import annotations

import contextlib
import http.server
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.terminal import probe
from barnabas.terminal.probe import NotKafka, require_kafka
from tests.clients.cli_support import Cli

TOOLS = [
    ("topic", "list"),
    ("produce", "t"),
    ("group", "describe", "g"),
    ("clients",),
    ("kafka", "topics", "--list", "--bootstrap-server"),
    ("kafka", "console-consumer", "--topic", "t", "--bootstrap-server"),
]


@contextlib.contextmanager
def serving(handle: Callable[[socket.socket], object]) -> Iterator[int]:
    """A server that hands each connection to `handle`; its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept = []

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connected, _ = server.accept()
                    kept.append(connected)
                    threading.Thread(target=attempt, args=(connected,), daemon=True).start()

        def attempt(connected: socket.socket) -> None:
            with contextlib.suppress(OSError):
                handle(connected)

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        for connected in kept:
            connected.close()


def run(port: int, *words: str) -> subprocess.CompletedProcess[bytes]:
    cli = Cli(f"127.0.0.1:{port}")
    more = [cli.bootstrap] if words[-1] == "--bootstrap-server" else []
    return cli(*words, *more, code=1)


@pytest.fixture
def web_port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.mark.parametrize("words", TOOLS, ids=lambda words: " ".join(words[:2]))
def test_a_web_server(web_port: int, words: tuple[str, ...]) -> None:
    done = run(web_port, *words)
    assert f"127.0.0.1:{web_port} speaks HTTP".encode() in done.stderr
    assert done.stderr.count(b"\n") == 1


def ask(port: int, protocol: str = "PLAINTEXT") -> str | None:
    with socket.create_connection(("127.0.0.1", port)) as connected:
        return require_kafka(connected, "host:1", protocol)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """A server's side of TLS."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x",
         "-keyout", folder / "key", "-out", folder / "cert"],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert", folder / "key")
    return context


def test_a_tls_listener(tls: ssl.SSLContext) -> None:
    with serving(lambda connected: tls.wrap_socket(connected, server_side=True).recv(1)) as port:
        with pytest.raises(NotKafka, match=r"wants TLS; add -X security\.protocol=SSL"):
            ask(port)
        with pytest.raises(NotKafka, match=r"wants TLS and a login; add -X security\.protocol=SASL_SSL"):
            ask(port, "SASL_PLAINTEXT")
        assert ask(port, "SSL") is None


def test_a_tls_listener_that_takes_its_time(tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow handshake does not mean that there is no TLS."""
    monkeypatch.setattr(probe, "PATIENCE_SECONDS", 0.05)
    with serving(lambda connected: threading.Event().wait()) as port:
        assert ask(port, "SSL") is None


def test_a_tls_listener_that_goes_by_names_and_counts_connections(tls: ssl.SSLContext) -> None:
    """As behind a router: without the right name there is no answer, and a peer has one connection only."""
    names: list[str | None] = []
    tls.sni_callback = lambda inside, name, context: names.append(name)
    connections: list[int] = []

    def answer(connected: socket.socket) -> None:
        connections.append(1)
        if len(connections) == 1:
            tls.wrap_socket(connected, server_side=True).recv(1)
        else:
            connected.close()

    with serving(answer) as port:
        assert ask(port, "SSL") is None
    tls.sni_callback = None
    assert (names, connections) == (["host"], [1])


def test_a_sasl_listener() -> None:
    """It answers ApiVersions, and closes the connection on anything but SASL."""

    def answer(connected: socket.socket) -> None:
        connected.recv(1000)
        body = struct.pack(">ihi", 1, 0, 0)
        connected.sendall(struct.pack(">i", len(body)) + body)
        connected.close()

    with serving(answer) as port:
        with pytest.raises(NotKafka, match="wants SASL"):
            ask(port)
        assert ask(port, "SASL_PLAINTEXT") is None


def test_silence_is_no_verdict_but_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(probe, "OTHER_SECONDS", 0.05)
    with serving(lambda connected: connected.recv(1000)) as port:
        complaint = ask(port)
    assert complaint is not None
    assert "has said nothing yet" in complaint


def test_a_busy_broker_is_not_talked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers late, but while we look whether it is something else."""
    monkeypatch.setattr(probe, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(probe, "OTHER_SECONDS", 60)
    asked = threading.Semaphore(0)

    def answer(connected: socket.socket) -> None:
        kafka = connected.recv(4) == b"\0\0\0\x18"
        asked.release()
        if kafka:
            for _ in range(3):  # this connection, and those that ask for HTTP and TLS
                asked.acquire()
            connected.sendall(struct.pack(">iihi", 10, 1, 0, 0))
        connected.recv(1000)

    with serving(answer) as port:
        assert ask(port) is None


def test_another_server() -> None:
    with (
        serving(lambda connected: connected.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")) as port,
        pytest.raises(NotKafka, match="is not a Kafka broker"),
    ):
        ask(port)


def test_tls_where_there_is_none(cli: Cli) -> None:
    done = cli("topic", "list", "-X", "security.protocol=SSL", code=1)
    assert b"does not speak TLS" in done.stderr


SESSION = """
ip link set lo up
python -m barnabas start --data "$1" > "$1.out" 2>&1 & broker=$!
for i in $(seq 300); do grep -q ^ready "$1.out" && break; sleep 0.1; done
set -e
trap 'kill $broker; wait $broker' EXIT
barnabas topic create greetings --partitions 3
echo hello | barnabas produce greetings
barnabas consume greetings -e
barnabas topic list
kafka-topics --list --bootstrap-server localhost:9092
echo world | kafka-console-producer --topic greetings --bootstrap-server localhost:9092
kafka-console-consumer --topic greetings --from-beginning --max-messages 2 --bootstrap-server localhost:9092
"""


def test_without_any_network(tmp_path: Path) -> None:
    """The README's first session where only the loopback device exists."""
    cli = Cli("")
    environment = cli.environment()
    del environment["BARNABAS_BOOTSTRAP"]
    bin_dir = Path(cli.command()[0]).parent
    environment["PATH"] = f"{bin_dir}:{environment['PATH']}"
    tried = subprocess.run(["unshare", "--net", "--map-root-user", "true"], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip("no network namespace may be made here")
    command = [
        "unshare",
        "--net",
        "--map-root-user",
        "bash",
        "-c",
        SESSION,
        "session",
        str(tmp_path / "data"),
    ]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert lines.count(b"hello") == 2
    assert b"greetings" in lines
    assert b"world" in lines
