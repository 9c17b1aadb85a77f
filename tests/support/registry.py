"""`barnabas registry start` in a process of its own."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from barnabas.client.registry import TAKES_NEW_FIELDS
from tests.support.process import READY_TIMEOUT_S, free_port


class RegistryProcess:
    """One instance on a free port. The group and the topic decide which instances belong together."""

    def __init__(self, bootstrap: str, log: Path, *arguments: str, port: int | None = None) -> None:
        self.bootstrap = bootstrap
        self.log_path = log
        self.arguments = arguments
        self.port = port or free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.ready_line = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> RegistryProcess:
        self.launch()
        self.await_ready()
        return self

    def launch(self) -> None:
        command = [sys.executable, "-m", "barnabas", "registry", "start", "-b", self.bootstrap]
        command += ["--listen", f"127.0.0.1:{self.port}", *self.arguments]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL
            )

    def await_ready(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], READY_TIMEOUT_S)[0]:
            raise AssertionError(f"no ready line: {self.log_path.read_text()[-2000:]}")
        self.ready_line = self.process.stdout.readline().decode()
        assert self.ready_line.startswith("ready"), self.log_path.read_text()[-2000:]

    def await_writer(self) -> None:
        """Returns once some instance writes, as this one knows it."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while call(self.url, "GET", "/ready")[0] != 200:
            assert time.monotonic() < deadline, self.log_path.read_text()[-2000:]
            time.sleep(0.1)

    def end(self, number: int = signal.SIGTERM) -> int:
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            code = self.process.wait(timeout=120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None
        return code


@contextmanager
def own_registry(bootstrap: str, folder: Path, name: str) -> Iterator[RegistryProcess]:
    """A registry with a topic and a group of its own, which ends in order and without a traceback in its log."""
    log = folder / "registry.log"
    names = ("--topic", f"_schemas_{name}", "--group", f"registry-{name}")
    process = RegistryProcess(bootstrap, log, *names).start()
    process.await_writer()
    yield process
    assert process.end() == 0
    assert "Traceback" not in log.read_text()


def call(
    url: str,
    method: str,
    path: str,
    body: Any = None,
    *,
    timeout: float = 120,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, Any]:
    """Status and answer of one request; a body is sent as JSON, bytes as they are."""
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    sent = {
        "Content-Type": "application/vnd.schemaregistry.v1+json",
        TAKES_NEW_FIELDS: "true",
        **(headers or {}),
    }
    request = urllib.request.Request(url + path, data, sent, method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            status, raw = response.status, response.read()
    except urllib.error.HTTPError as error:
        status, raw = error.code, error.read()
    return status, json.loads(raw) if raw else None
