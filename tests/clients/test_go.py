"""Go clients, franz-go and sarama, producer, consumer, groups and admin, against our broker."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.clients import foreign
from tests.clients.drivers import Confluent, Message
from tests.support.admin import create_topic
from tests.support.examples import examples, one_in
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.go

SOURCES = foreign.HERE / "go"
RECORDS = examples(60_000)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="session")
def probe() -> list[str]:
    """The program, built once per version of its sources."""
    return [str(foreign.go_program("go", SOURCES, "the Go modules"))]


@pytest.mark.parametrize("codec", one_in(4, CODECS))
@pytest.mark.parametrize("client", ["franz", "sarama"])
def test_what_is_produced_comes_back(probe: list[str], bootstrap: str, client: str, codec: str) -> None:
    """Each codec with acks 0, 1 and all."""
    assert foreign.run(probe, bootstrap, f"{client}-roundtrip", codec, str(RECORDS))["records"] == 3 * RECORDS


@pytest.mark.parametrize(
    "scenario",
    ["franz-offsets", "franz-admin", "franz-group", "sarama-offsets", "sarama-admin", "sarama-group"],
)
def test_scenario(probe: list[str], bootstrap: str, scenario: str) -> None:
    """franz-group kills one of three members; see go/ for what each scenario demands."""
    foreign.run(probe, bootstrap, scenario)


def test_idempotent_producer(probe: list[str], bootstrap: str) -> None:
    foreign.run(probe, bootstrap, "franz-idempotent", str(RECORDS))


@pytest.mark.parametrize(
    "release", ["v0.11.0", "v1.0", "v2.0", "v2.1", "v2.4", "v2.8", "v3.3", "v3.9", "v4.0"]
)
def test_the_request_versions_of_older_releases(probe: list[str], bootstrap: str, release: str) -> None:
    """franz-go bound to what a client of that release would ask: records, offsets, a group, admin."""
    foreign.run(probe, bootstrap, "franz-versions", release)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_compacted_topic_of_small_segments_is_read_to_its_end(
    probe: list[str], own_broker: Callable[..., BrokerProcess], acks: int
) -> None:
    """kafka-go begins again at the first offset when a fetch holds nothing but an empty batch, and librdkafka takes it
    for a message that is too large. With acks -1 each record has a producer id, whose last batch must stay."""
    broker = own_broker(log__cleaner__backoff__ms="100")
    config = {"cleanup.policy": "compact", "segment.bytes": "200", "min.cleanable.dirty.ratio": "0.01"}
    create_topic(broker.bootstrap, "states", config=config)
    client = Confluent()
    for i in range(60):
        message = Message(0, b"k%d" % (i % 3), b"%d" % i)
        client.produce(broker.bootstrap, "states", [message], codec="none", acks=acks)

    def left() -> list[int]:
        messages = client.read_to_end(broker.bootstrap, "states")
        return [message.offset for message in messages]

    deadline = time.monotonic() + 120
    while len(left()) > 6 and time.monotonic() < deadline:
        pass  # the active segment and the one before it keep theirs
    report = foreign.run(probe, broker.bootstrap, "kafkago-read", "states", "59")
    assert report["offsets"] == left()
    assert len(report["offsets"]) <= 6
