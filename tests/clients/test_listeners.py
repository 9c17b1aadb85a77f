"""What a broker listens on, and the address that a peer is told."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.wire.header import decode_response_header, encode_request
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse

Start = Callable[..., str]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def run(listen: str, *options: str) -> str:
        command = [sys.executable, "-m", "barnabas", "start", "--data", str(tmp_path), "--listen", listen]
        process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        return process.stdout.readline()

    yield run
    for process in started:
        process.terminate()
        assert process.wait(timeout=120) == 0
        assert process.stdout is not None
        process.stdout.close()


def told(host: str, port: int) -> tuple[str, int]:
    with socket.create_connection((host, port), timeout=120) as sock, sock.makefile("rb") as stream:
        sock.sendall(encode_request(MetadataRequest(topics=[]), 12, 1, "who"))
        frame = stream.read(int.from_bytes(stream.read(4), "big"))
    _, position = decode_response_header(frame, 3, 12)
    broker = MetadataResponse.decode(frame, 12, position).brokers[0]
    return broker.host, broker.port


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_a_listener_of_both_families_tells_each_peer_the_address_it_used(start: Start) -> None:
    match = re.match(r"ready on \[::\]:(\d+) ", start("[::]:0"))
    assert match is not None
    port = int(match[1])
    assert told("::1", port) == ("::1", port)
    assert told("127.0.0.1", port) == ("127.0.0.1", port)


def test_what_is_advertised_goes_before_the_address_that_was_used(start: Start) -> None:
    line = start("127.0.0.1:0", "-o", "advertised.listeners=PLAINTEXT://broker.example:1234")
    port = int(re.match(r"ready on 127\.0\.0\.1:(\d+) ", line)[1])  # type: ignore[index]
    assert told("127.0.0.1", port) == ("broker.example", 1234)
