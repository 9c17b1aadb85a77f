"""Ten thousand TLS handshakes that are begun and not finished, while a client works."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from confluent_kafka import KafkaError, Producer

from barnabas.security import folder as secured
from tests.support.process import BrokerProcess, free_port

pytestmark = pytest.mark.soak

COUNT = 10_000
GROWTH_BYTES_MAX = 450 << 20
PROGRAM = Path(__file__).with_name("half_open.py")


@pytest.mark.parametrize("how", ["part", "whole"])
def test_half_open_handshakes_harm_nobody(tmp_path: Path, how: str) -> None:
    folder = tmp_path / "secure"
    secured.create(folder, [], [])
    port = free_port()
    options = {**secured.options(folder), "listeners": f"SASL_SSL://127.0.0.1:{port}"}
    lines = (folder / "clients" / "admin" / "librdkafka.properties").read_text().splitlines()
    client = {**dict(line.split("=", 1) for line in lines), "bootstrap.servers": f"127.0.0.1:{port}"}
    broker = BrokerProcess(tmp_path / "data", options=options, port=port).start()
    flood = None
    try:
        producer = Producer(client)
        send(producer)
        process = psutil.Process(broker.pid)
        before_bytes = process.memory_info().rss
        flood = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(port), str(COUNT), how],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        top_bytes, waits_s = before_bytes, []
        end_s = time.monotonic() + 60
        while time.monotonic() < end_s:
            begun_s = time.monotonic()
            send(producer)
            waits_s.append(time.monotonic() - begun_s)
            top_bytes = max(top_bytes, process.memory_info().rss)
            time.sleep(0.02)
        assert flood.stdout is not None
        assert flood.stdout.readline().strip() == str(COUNT)
        assert top_bytes - before_bytes < GROWTH_BYTES_MAX, f"{(top_bytes - before_bytes) >> 20} MiB"
        assert max(waits_s) < 10, f"the slowest of {len(waits_s)} records took {max(waits_s):.1f} s"
        send(Producer(client))
        assert process.num_fds() < 1_000, "those that stalled were cut"
    finally:
        if flood is not None:
            flood.communicate()
        broker.kill()


def send(producer: Producer) -> None:
    errors: list[KafkaError | None] = []
    producer.produce("flooded", b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None]
