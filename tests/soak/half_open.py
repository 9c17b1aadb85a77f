"""A program of its own: opens COUNT connections to PORT, sends the beginning of a TLS handshake on each, holds them."""

from __future__ import annotations

import resource
import socket
import ssl
import sys


def client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def main(port: int, count: int, how: str) -> None:
    """how: `whole` sends all of the first message, `part` all but its last byte. Ends with its standard input."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, hard))
    hello = client_hello()
    peers = []
    for _ in range(count):
        peer = socket.create_connection(("127.0.0.1", port), 60)
        peer.sendall(hello if how == "whole" else hello[:-1])
        peers.append(peer)
    print(len(peers), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
