"""Two topics side by side, filled by librdkafka."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from tests.console.conftest import ConsoleProcess

Record = tuple[int, str | None, str | None]


def fill(console: ConsoleProcess, topic: str, partitions: int, records: list[Record], **more: str) -> None:
    """Create a topic, and write (partition, key, value)."""
    fields = {"name": topic, "partitions": partitions, "options": more}
    console.post("/topics", fields)
    producer = Producer({"bootstrap.servers": console.bootstrap})
    for partition, key, value in records:
        producer.produce(topic, value, key, partition)
        producer.flush(30)  # in batches of one, so that offsets of both are read in other portions


@pytest.fixture(scope="module")
def copies(console: ConsoleProcess) -> None:
    whole: list[Record] = [(n % 2, f"k{n}", f"v{n}") for n in range(20)]
    fill(console, "compared", 2, whole)
    fill(console, "copied", 2, whole)
    other = [(p, k, "changed" if k == "k7" else v) for p, k, v in whole if k != "k19"]
    fill(console, "damaged", 2, other, **{"retention.ms": "86400000"})
    fill(console, "spread", 3, [((p + 1) % 3, k, v) for p, k, v in whole if k != "k4"] + [(0, "gone", None)])


@pytest.mark.usefixtures("copies")
def test_a_copy_is_told_to_be_the_same(console: ConsoleProcess) -> None:
    comparison = console.data("/topics/compared/compare", **{"with": "copied"})
    assert (comparison["differences"], comparison["options"]) == ([], [])
    assert (comparison["counted"]["scanned"], comparison["counted"]["is_over"]) == (40, True)
    assert all(row["is_same"] for row in comparison["partitions"])
    assert "No record differs." in console.page("/topics/compared/compare", **{"with": "copied"})


@pytest.mark.usefixtures("copies")
def test_what_differs_is_shown_by_offset(console: ConsoleProcess) -> None:
    comparison = console.data("/topics/compared/compare", **{"with": "damaged"})
    assert [row["name"] for row in comparison["options"]] == ["retention.ms"]
    assert [row["is_same"] for row in comparison["partitions"]] == [True, False]
    (one,) = comparison["differences"]
    assert (one["what"], one["key"]) == ("value", "k7")
    assert one["here"] == {"partition": 1, "offset": 3, "value": "v7"}
    assert one["there"] == {"partition": 1, "offset": 3, "value": "changed"}
    page = console.page("/topics/compared/compare", **{"with": "damaged"})
    assert "changed" in page
    assert "86400000" in page


@pytest.mark.usefixtures("copies")
def test_what_differs_is_shown_by_key(console: ConsoleProcess) -> None:
    comparison = console.data("/topics/compared/compare", **{"with": "spread", "by": "key"})
    assert [(d["what"], d["key"]) for d in comparison["differences"]] == [("missing there", "k4")]
    comparison = console.data("/topics/damaged/compare", **{"with": "compared", "by": "key"})
    assert [(d["what"], d["key"]) for d in comparison["differences"]] == [
        ("missing here", "k19"),
        ("value", "k7"),
    ]


@pytest.mark.usefixtures("copies")
def test_more_differences_than_fit_are_found_by_going_on(console: ConsoleProcess) -> None:
    fill(console, "shifted", 2, [(n % 2, f"k{n + 2}", f"v{n}") for n in range(20)])
    places, at, pages = [], "", 0
    while at is not None:
        answer = console.data("/topics/compared/compare", **{"with": "shifted", "limit": 3, "at": at})
        places += [(d["here"]["partition"], d["here"]["offset"]) for d in answer["differences"]]
        at, pages = answer["next"], pages + 1
        assert pages < 12
    assert places == [(p, offset) for p in (0, 1) for offset in range(10)]


@pytest.mark.usefixtures("copies")
def test_what_cannot_be_compared_is_said(console: ConsoleProcess) -> None:
    assert "There is no topic" in console.page("/topics/compared/compare", 404, **{"with": "<b>"})
    console.page("/topics/compared/compare", 404, **{"with": "nowhere"})
    wrong = console.page("/topics/compared/compare", 400, **{"with": "copied", "by": "luck"})
    assert "by must be one of offset, key" in wrong
    console.page("/topics/compared/compare", 400, **{"with": "copied", "at": "x"})
    console.page("/topics/compared/compare")
