"""The lab with stock prices, as a program in Java for the client of the course's time and for later ones: a serializer, a
partitioner and an interceptor of its own, ten senders, metrics."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.clients import foreign
from tests.support.admin import create_topic
from tests.support.process import BrokerProcess

pytestmark = [pytest.mark.java, pytest.mark.soak]

SOURCES: Final = Path(__file__).parent / "java"
POM: Final = foreign.HERE / "old" / "java" / "pom.xml"


@pytest.mark.parametrize("release", ["0.10.2.2", "2.8.2", "3.9.2"])
def test_stock_prices(release: str, own_broker, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    java, javac = foreign.need("java"), foreign.need("javac")
    jars = foreign.made(
        f"java-libs-{release}",
        lambda folder: foreign.maven(POM, folder, f"kafka-clients {release}", f"-Dkafka.version={release}"),
    )
    broker: BrokerProcess = own_broker()
    create_topic(broker.bootstrap, "stock-prices", 3)
    flags = [f"-J{option}" for option in foreign.SHORT_JAVA]
    source = str(SOURCES / "StockPrices.java")
    foreign.build([javac, *flags, "-nowarn", "-cp", f"{jars}/*", "-d", str(tmp_path), source], SOURCES)
    command = [java, *foreign.SHORT_JAVA, "-cp", f"{tmp_path}:{jars}/*", "StockPrices", broker.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout.splitlines() == [
        "sent 500, acknowledged 500, measured true",
        "read 500, lane [IBM, UBER], rest [ABC, GOOG, MSFT, XYZ]",
    ], done.stderr[-3000:]
