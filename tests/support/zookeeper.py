"""A real ZooKeeper server from PySpark's jars, as a process of its own."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from tests.support.process import free_port

ZOOKEEPER_CONFIG = """
tickTime=500
dataDir={folder}
clientPort={port}
clientPortAddress={host}
admin.enableServer=false
maxSessionTimeout=60000
"""


def zookeeper_jars() -> Path | None:
    """Where PySpark keeps its jars, among them a ZooKeeper server's."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None or shutil.which("java") is None or find_spec("kazoo") is None:
        return None
    jars = Path(spec.origin).parent / "jars"
    return jars if list(jars.glob("zookeeper-3*.jar")) else None


class ZooKeeperServer:
    """One ZooKeeper server on a free port, over a folder that outlives its restarts."""

    def __init__(
        self,
        jars: Path,
        folder: Path,
        config: str = "",
        java: tuple[str, ...] = (),
        *,
        host: str = "127.0.0.1",
        prefix: Sequence[str] = (),
    ) -> None:
        """config: further lines of its file. java: options of its JVM. prefix: words before the command, which run it
        on another host.
        """
        self.host = host
        self._prefix = list(prefix)
        self.port = free_port()
        self._jars = jars
        self._config = folder / "zoo.cfg"
        self._log = folder / "out.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._java = java
        text = ZOOKEEPER_CONFIG.format(folder=folder / "data", port=self.port, host=host)
        self._config.write_text(text + config)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> ZooKeeperServer:
        command = [
            *self._prefix,
            "java",
            "-Xmx128m",
            "-XX:TieredStopAtLevel=1",
            *self._java,
            "-cp",
            f"{self._jars}/*",
        ]
        command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self._config)]
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out)
        wait_for_port(self._process, self.port, self._log, self.host)
        return self

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Ensemble:
    """Several ZooKeeper servers that elect a leader, each on a host of its own."""

    def __init__(self, jars: Path, folder: Path, places: Sequence[tuple[str, list[str]]]) -> None:
        """places: the address of each server, and the words before its command that start it there."""
        peers = "".join(f"server.{number}={host}:2888:3888\n" for number, (host, _) in enumerate(places, 1))
        self.servers: list[ZooKeeperServer] = []
        for number, (host, prefix) in enumerate(places, 1):
            place = folder / f"zk{number}"
            (place / "data").mkdir(parents=True)
            (place / "data" / "myid").write_text(f"{number}\n")
            config = f"initLimit=20\nsyncLimit=4\n{peers}"
            self.servers.append(ZooKeeperServer(jars, place, config, host=host, prefix=prefix))

    @property
    def address(self) -> str:
        return ",".join(server.address for server in self.servers)

    def start(self) -> Ensemble:
        for server in self.servers:
            server.start()
        return self

    def kill(self) -> None:
        for server in self.servers:
            server.kill()


def wait_for_port(server: subprocess.Popen[bytes], port: int, log: Path, host: str = "127.0.0.1") -> None:
    for _ in range(300):
        assert server.poll() is None, log.read_text()
        try:
            socket.create_connection((host, port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"ZooKeeper does not listen: {log.read_text()}")
