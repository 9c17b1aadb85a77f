"""The transport of TLS connections against Python's own TLS client, over a socket, without a broker."""

from __future__ import annotations

import contextlib
import os
import random
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.net.buffers import CIPHER_BUFFER_BYTES
from barnabas.broker.net.tls import RECORDS_MAX, Secured, TlsTransport
from barnabas.security.authority import Authority

PATIENCE_S = 60
VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    key, certificate = Authority.new("a CA").issue("localhost", ["localhost"])
    path = tmp_path_factory.mktemp("tls") / "store.pem"
    path.write_bytes(key + certificate)
    return path


@contextlib.contextmanager
def connected(store: Path, version: ssl.TLSVersion) -> Iterator[tuple[ssl.SSLSocket, TlsTransport]]:
    """A client, blocking, and the transport of its connection; with socket buffers as small as they can be."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(store)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.settimeout(PATIENCE_S)
        raw.connect(server.getsockname())
        accepted = server.accept()[0]
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    trusting.minimum_version = trusting.maximum_version = version
    client = trusting.wrap_socket(raw, do_handshake_on_connect=False)
    greeting = threading.Thread(target=client.do_handshake)
    greeting.start()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_side=True)
    accepted.settimeout(PATIENCE_S)
    while True:
        with contextlib.suppress(ssl.SSLWantReadError):
            tls.do_handshake()
            break
        accepted.sendall(outgoing.read())
        incoming.write(accepted.recv(4096))
    accepted.sendall(outgoing.read())
    greeting.join()
    accepted.setblocking(False)
    cipher = memoryview(bytearray(CIPHER_BUFFER_BYTES))
    transport = TlsTransport(Secured(accepted, tls, incoming, outgoing, memoryview(b"")), cipher)
    try:
        yield client, transport
    finally:
        transport.close()
        client.close()


def received(transport: TlsTransport, buffer: memoryview) -> int | None:
    """What one turn brings; None for nothing yet."""
    try:
        return transport.recv_into(buffer)
    except BlockingIOError:
        select.select([transport.fd], [], [], 0.01)
        return None


@pytest.mark.parametrize("version", VERSIONS)
def test_what_the_socket_does_not_take_comes_again_and_is_sent_once(
    store: Path, version: ssl.TLSVersion
) -> None:
    """Both sides send at the same time, in pieces of all sizes, through sockets that take little at a time."""
    draw = random.Random(1)
    data = draw.randbytes(3_000_000)
    with connected(store, version) as (client, transport):
        back = bytearray()

        def echo() -> None:
            left = len(data)
            while left:
                piece = client.recv(30_000)
                client.sendall(piece)
                left -= len(piece)

        echoing = threading.Thread(target=echo)
        echoing.start()
        sent, offered, buffer = 0, 0, memoryview(bytearray(100_000))
        while len(back) < len(data):
            # As a connection does: what was offered once begins what is offered next.
            offered = max(offered, min(len(data), sent + draw.choice((1, 100, 5_000, 300_000))))
            if sent < len(data):
                with contextlib.suppress(BlockingIOError):
                    sent += transport.send(memoryview(data)[sent:offered], 0)
            count = received(transport, buffer[: draw.choice((1, 1_000, 100_000))])
            assert count != 0
            back += buffer[: count or 0]
        echoing.join()
        assert bytes(back) == data


@pytest.mark.parametrize("version", VERSIONS)
def test_a_turn_decrypts_a_bounded_number_of_records(store: Path, version: ssl.TLSVersion) -> None:
    records = 3 * RECORDS_MAX
    with connected(store, version) as (client, transport):

        def write() -> None:
            for number in range(records):
                client.send(bytes([number & 0xFF]))

        writing = threading.Thread(target=write)
        writing.start()
        decrypted, turns = b"", []
        buffer = memoryview(bytearray(1 << 18))
        while len(decrypted) < records:
            count = received(transport, buffer)
            if count is not None:
                turns.append(count)
                decrypted += buffer[:count]
        writing.join()
        assert decrypted == bytes(number & 0xFF for number in range(records))
        assert max(turns) <= RECORDS_MAX


@pytest.mark.parametrize("version", VERSIONS)
def test_the_farewells_of_both_sides(store: Path, version: ssl.TLSVersion) -> None:
    buffer = memoryview(bytearray(1000))
    with connected(store, version) as (client, transport):
        client.sendall(b"last words")

        def leave() -> None:
            with contextlib.suppress(OSError):
                client.unwrap()

        leaving = threading.Thread(target=leave)
        leaving.start()
        decrypted = b""
        while (count := received(transport, buffer)) != 0:
            decrypted += buffer[: count or 0]
        assert decrypted == b"last words"
        assert received(transport, buffer) == 0
        transport.close()
        leaving.join()
    with connected(store, version) as (client, transport):
        assert transport.send(b"last words", 0) == 10
        transport.close()
        assert client.recv(100) == b"last words"
        setattr(client, "suppress_ragged_eofs", False)  # noqa: B010 - known to the class, not to its types
        assert client.recv(100) == b""  # close_notify: an end without it raises


def test_a_changed_record_is_an_error_behind_what_came_before(store: Path) -> None:
    with connected(store, ssl.TLSVersion.TLSv1_3) as (client, transport):
        client.sendall(b"good")
        raw = socket.socket(fileno=socket.dup(client.fileno()))
        broken = b"\x17\x03\x03\x00\x20" + bytes(32)
        raw.sendall(broken)
        with socket.socket(fileno=os.dup(transport.fd)) as there:
            while not there.recv(1000, socket.MSG_PEEK).endswith(broken):  # both are met in one turn
                select.select([], [], [], 0.01)
        assert all_until_error(transport) == b"good"
        raw.close()
        with pytest.raises(ssl.SSLError, match=r"(?i)bad record mac"):
            client.recv(10)


def all_until_error(transport: TlsTransport) -> bytes:
    """What came before the transport has met an error of TLS."""
    decrypted, buffer = b"", memoryview(bytearray(1000))
    try:
        while True:
            count = received(transport, buffer)
            assert count != 0
            decrypted += buffer[: count or 0]
    except ssl.SSLError:
        return decrypted
