"""Confluent's Go client, which is librdkafka in a Go program and needs a C compiler; and Benthos."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from tests.clients.foreign import build, fetch_or_skip, fingerprint, made, need
from tests.frameworks.harness import capitals, go_program, prepare
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


@pytest.mark.parametrize("kind", ["kafka", "kafka_franz"])
def test_benthos(kind: str, broker: BrokerProcess, tmp_path: Path) -> None:
    """Its components with sarama, and those with franz-go."""
    program, name = go_program("benthos", "."), f"benthos-{kind.replace('_', '-')}"
    prepare(broker.bootstrap, name)
    (tmp_path / "benthos.yaml").write_text(f"""
http: {{enabled: false}}
input:
  {kind}:
    {"addresses" if kind == "kafka" else "seed_brokers"}: [{broker.bootstrap}]
    topics: [{name}-in]
    consumer_group: {name}
    start_from_oldest: true
pipeline:
  processors: [{{mapping: root = content().uppercase()}}]
output:
  {kind}:
    {"addresses" if kind == "kafka" else "seed_brokers"}: [{broker.bootstrap}]
    topic: {name}-out
""")
    capitals(broker.bootstrap, name, [str(program), "-c", str(tmp_path / "benthos.yaml")], tmp_path, {})
