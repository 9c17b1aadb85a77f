"""The last three versions of the other clients, each in a folder of its own."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from tests.clients import foreign

HERE = Path(__file__).parent
BASIC = ("records", "groups", "transactions", "admin")


class PythonClient(NamedTuple):
    """A package of PyPI in one version, and what python/`module`.py does with it."""

    package: str
    version: str
    module: str
    steps: tuple[str, ...] = BASIC

    @property
    def name(self) -> str:
        return f"{self.package}-{self.version}"

    def program(self) -> list[str]:
        def install(folder: Path) -> None:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder)]
            foreign.fetch_or_skip(
                [*pip, f"{self.package}=={self.version}"], HERE, f"pip cannot fetch {self.name}"
            )

        place = foreign.made(f"{self.name}-py{sys.version_info[0]}{sys.version_info[1]}", install)
        probe = HERE / "python" / "probe.py"
        return ["env", f"PYTHONPATH={place}", sys.executable, "-W", "ignore", str(probe), self.module]


NEWER = ("new_groups", "asynchronous")

PYTHON = (
    PythonClient("confluent-kafka", "2.16.1", "librdkafka", (*BASIC, *NEWER, "shares")),
    PythonClient("confluent-kafka", "2.15.1", "librdkafka", (*BASIC, *NEWER, "shares")),
    PythonClient("confluent-kafka", "2.14.2", "librdkafka", (*BASIC, *NEWER)),
    PythonClient("kafka-python", "3.0.12", "kafka_python"),
    PythonClient("kafka-python", "2.3.3", "kafka_python"),
    PythonClient("kafka-python", "2.2.21", "kafka_python"),
    PythonClient("aiokafka", "0.14.0", "aio_kafka"),
    PythonClient("aiokafka", "0.13.0", "aio_kafka"),
    PythonClient("aiokafka", "0.12.0", "aio_kafka"),
)
PYTHON_BORDERS = tuple(
    client for client in PYTHON if client.version in ("2.16.1", "2.14.2", "2.2.21", "0.12.0")
)
"""The newest with everything it has, and the oldest of each."""

KAFKAJS = ("2.2.4", "2.1.0", "2.0.2")
KAFKAJS_STEPS = (("roundtrip", "gzip", "1000"), ("group",), ("transactions",), ("admin",))


def kafkajs(version: str) -> list[str]:
    node, modules = foreign.need("node"), foreign.kafkajs_modules(version)
    return [
        "env",
        f"PROBE_MODULES={modules}",
        "NODE_NO_WARNINGS=1",
        node,
        str(foreign.HERE / "node" / "probe.js"),
    ]


class GoClient(NamedTuple):
    """A Go client in one version: go/ is built with these modules instead of those that its go.mod names."""

    name: str
    modules: tuple[str, ...]
    steps: tuple[tuple[str, ...], ...]

    def program(self) -> list[str]:
        go, sources, pure = foreign.need("go"), foreign.HERE / "go", {"CGO_ENABLED": "0"}

        def compile_it(folder: Path) -> None:
            copy = folder / "sources"
            shutil.copytree(sources, copy)
            foreign.fetch_or_skip([go, "get", *self.modules], copy, f"{self.name} cannot be fetched", pure)
            foreign.fetch_or_skip([go, "mod", "tidy"], copy, f"{self.name} cannot be fetched", pure)
            quick = ["-gcflags=all=-N -l", "-ldflags=-w"]
            foreign.build([go, "build", *quick, "-o", str(folder / "probe"), "."], copy, pure)

        return [
            str(foreign.made(f"go-{self.name}-{foreign.fingerprint(sources, '*')}", compile_it) / "probe")
        ]


def _franz(version: str, *modules: str) -> GoClient:
    root = "github.com/twmb/franz-go"
    every = (f"{root}@{version}", *(f"{root}/pkg/{module}" for module in modules))
    steps = [("roundtrip", "zstd", "1000"), ("offsets",), ("group",), ("transactions", "v4.0"), ("admin",)]
    return GoClient(f"franz-go-{version}", every, tuple((f"franz-{step[0]}", *step[1:]) for step in steps))


def _sarama(version: str) -> GoClient:
    steps = (("sarama-roundtrip", "zstd", "1000"), ("sarama-offsets",), ("sarama-group",), ("sarama-admin",))
    return GoClient(f"sarama-{version}", (f"github.com/IBM/sarama@{version}",), steps)


GO = (
    _franz("v1.22.3", "kadm@v1.19.0", "kmsg@v1.15.1"),
    _franz("v1.21.7", "kadm@v1.18.0", "kmsg@v1.14.0"),
    _franz("v1.20.7", "kadm@v1.17.2", "kmsg@v1.12.0"),
    _sarama("v1.61.1"),
    _sarama("v1.60.2"),
    _sarama("v1.50.3"),
)
