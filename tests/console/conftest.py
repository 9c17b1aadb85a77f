"""A console beside the tests' broker, and a session of a browser without one."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import requests
from tests.support.process import BrokerProcess
from tests.support.registry import RegistryProcess

WAIT_S = 120
STAMP = re.compile(r'name="stamp" value="([0-9a-f]+)"')


class ConsoleProcess:
    """`barnabas console` as a process. url: where it answers. stamp: what its forms carry without a login."""

    def __init__(self, bootstrap: str, log: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "barnabas", "console", "-b", bootstrap, "--listen", "127.0.0.1:0"]
        self.log = log
        self.bootstrap = bootstrap
        with log.open("wb") as out:
            self.process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=out)
        assert self.process.stdout is not None
        ready = self.process.stdout.readline().decode()
        assert ready.startswith("ready on "), log.read_text()
        self.url = ready.split()[2]
        self.home = f"{self.url}/clusters/local"
        self.api = f"{self.url}/api/v1/clusters/local"

    def end(self) -> None:
        self.process.terminate()
        assert self.process.wait(WAIT_S) == 0, self.log.read_text()[-2000:]

    def page(self, path: str = "", status: int = 200, **query: Any) -> str:
        """A page of the cluster."""
        answer = requests.get(self.home + path, params=query, timeout=WAIT_S)
        assert answer.status_code == status, (path, answer.status_code, answer.text[-2000:])
        return answer.text

    def data(self, path: str = "", **query: Any) -> Any:
        """The same as data."""
        answer = requests.get(self.api + path, params=query, timeout=WAIT_S)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def send(self, path: str, fields: Mapping[str, Any], status: int = 303) -> requests.Response:
        """Send a form as a browser does."""
        stamp = STAMP.search(requests.get(self.home, timeout=WAIT_S).text)
        assert stamp is not None
        form = {"stamp": stamp[1], **fields}
        answer = requests.post(self.home + path, data=form, timeout=WAIT_S, allow_redirects=False)
        assert answer.status_code == status, (answer.status_code, answer.text[-2000:])
        return answer

    def post(self, path: str, body: Mapping[str, Any], status: int = 200) -> Any:
        """A change through the API."""
        answer = requests.post(self.api + path, json=body, timeout=WAIT_S)
        assert answer.status_code == status, (answer.status_code, answer.text)
        return answer.json()


@contextmanager
def running(bootstrap: str, log: Path, *arguments: str) -> Iterator[ConsoleProcess]:
    console = ConsoleProcess(bootstrap, log, *arguments)
    try:
        yield console
    finally:
        if console.process.poll() is None:
            console.end()


@pytest.fixture(scope="session")
def bootstrap(broker: BrokerProcess) -> str:
    return broker.bootstrap


@pytest.fixture(scope="session")
def console(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    folder = tmp_path_factory.mktemp("console")
    with running(bootstrap, folder / "log", "--audit-topic", "console-audit") as console:
        yield console


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """A console beside a broker that checks access rules, and a registry."""
    folder = tmp_path_factory.mktemp("guarded")
    options = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    process = BrokerProcess(folder / "data", options=options).start()
    registry = RegistryProcess(process.bootstrap, folder / "registry.log").start()
    registry.await_writer()
    try:
        with running(process.bootstrap, folder / "log", "--registry", registry.url) as console:
            console.bootstrap = process.bootstrap
            yield console
    finally:
        registry.end()
        process.stop()
