"""Go clients, franz-go and sarama, producer, consumer, groups and admin, against our broker."""

from __future__ import annotations

import pytest

from tests.clients import foreign

pytestmark = pytest.mark.go

SOURCES = foreign.HERE / "go"
RECORDS = 100_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="session")
def probe() -> list[str]:
    """The program, built once per version of its sources."""
    go = foreign.need("go")
    program = foreign.CACHE / f"go-{foreign.fingerprint(SOURCES, '*.go', 'go.mod', 'go.sum')}"
    if not program.exists():
        foreign.CACHE.mkdir(parents=True, exist_ok=True)
        foreign.fetch_or_skip([go, "mod", "download"], SOURCES, "the Go modules cannot be fetched")
        foreign.build([go, "build", "-o", str(program), "."], SOURCES)
    return [str(program)]


@pytest.mark.parametrize("codec", CODECS)
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
