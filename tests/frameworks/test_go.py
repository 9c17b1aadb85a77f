"""Confluent's Go client, which is librdkafka in a Go program and needs a C compiler."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from tests.clients.foreign import build, fetch_or_skip, fingerprint, made, need
from tests.frameworks.harness import capitals, prepare
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.soak

SOURCES: Final = Path(__file__).parent / "go"


def test_confluents_client(broker: BrokerProcess, tmp_path: Path) -> None:
    go, with_c = (
        need("go"),
        {"CGO_ENABLED": "1", "GOFLAGS": f"{os.environ.get('GOFLAGS', '')} -mod=mod".strip()},
    )
    need("gcc")

    def compile_it(folder: Path) -> None:
        module = "github.com/confluentinc/confluent-kafka-go/v2"
        fetch_or_skip([go, "mod", "download", module], SOURCES, f"{module} cannot be fetched", with_c)
        build([go, "build", "-o", str(folder / "probe"), "."], SOURCES, with_c)

    program = made(f"framework-confluent-go-{fingerprint(SOURCES, '*')}", compile_it) / "probe"
    prepare(broker.bootstrap, "confluent-go")
    capitals(broker.bootstrap, "confluent-go", [str(program), broker.bootstrap], tmp_path, {})
