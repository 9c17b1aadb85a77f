"""barnabas.testing.network: hosts hear each other until their link is cut, and nobody else notices."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from barnabas.testing.network import Network, NetworkError

SERVE = """
import socket, sys
server = socket.create_server(("0.0.0.0", 7000))
print("ready", flush=True)
while True:
    server.accept()[0].close()
"""
CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 7000), float(sys.argv[2])).close()
except TimeoutError:
    print("silence")
else:
    print("heard")
"""


@pytest.fixture
def network() -> Iterator[Network]:
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("nsenter") is None:
        pytest.skip("needs root, `ip` and `nsenter`")
    try:
        emulated = Network(["a", "b"])
    except NetworkError as error:
        pytest.skip(str(error))
    with emulated:
        yield emulated


def test_links_are_cut_and_mended(network: Network) -> None:
    network.add_host("near", "a")
    network.add_host("far", "b")
    address = network.add_host("server", "a")
    words = [sys.executable, "-c", SERVE]
    server = subprocess.Popen(network.command("server", words), stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"

        def hears(host: str, within_s: float = 60) -> bool:
            command = network.command(host, [sys.executable, "-c", CONNECT, address, str(within_s)])
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            return done.stdout == "heard\n"

        assert hears("near")
        assert hears("far")
        network.part(["near"], ["server"])
        assert not hears("near", 0.4)
        assert hears("far")
        network.mend(["near"], ["server"])
        network.cut_zone("a")
        assert hears("near")
        assert not hears("far", 0.4)
        network.join_zone("a")
        assert hears("far")
    finally:
        server.kill()
        server.communicate()


def test_mistakes_are_told_in_a_sentence(network: Network) -> None:
    with pytest.raises(
        NetworkError, match="host 'x' in zone 'c': at most 200 hosts, each with a name of its own"
    ):
        network.add_host("x", "c")
    with pytest.raises(NetworkError, match="zone 'much-too-long': a name has 1 to 6 letters and digits"):
        Network(["much-too-long"], "198.18.255")
