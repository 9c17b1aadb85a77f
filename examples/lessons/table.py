"""Writes docs/lessons.md: python examples/lessons/table.py > docs/lessons.md"""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
STATES: Final = {
    "tested": "runs in every run of the tests",
    "soak": "runs in `make soak`, because it takes minutes or needs what a registry gives",
    "read": "nothing to type, or nothing that can be had; the page says more",
    "open": "not tried yet",
}
HEAD: Final = """# Lessons

Five documents teach Kafka, by lessons, labs and scenarios. With Barnabas in place of Kafka they can be followed from the
first page to the last. This table names each lab, with the place in its document and where the same runs here: a folder
with a page to read and programs to start, or a test that types what the document types.

Begin with [a first topic](../examples/lessons/first_topic/README.md).

The table is made from `examples/lessons/labs.toml`, and a test fails if the two differ or a path is missing.
"""


PRINTED_HEAD: Final = """
## Programs as they are printed

The guide and the course of 2018 print whole programs. `tests/lessons/test_printed.py` takes each from its document (which is
not part of this repository; the test is skipped where it is missing), compiles it against a client of its time (Kafka's
client 2.8.2 and 0.10.2.2 for Java, Flink 1.6.1, Shopify's sarama 1.38, Confluent's client 1.9 for Go, kafka-python, Debian's
librdkafka 2.0), and runs it against a broker, whose address replaces the printed one. No other change is made where the
state is *runs*; *mended* programs do not compile or do not work as printed, and the last column says why.
`examples/lessons/printed.toml` has each change.

| program | document | language | state | what the print lacks |
|---|---|---|---|---|
"""
NOT_RUN: Final = """
Other programs of the documents:

* The guide names kits for PHP, Node.js and C++, but prints no program in these languages; their clients are librdkafka and
  kafkajs, which other tests use.
* The course's programs in Avro need `io.confluent:kafka-avro-serializer`, which is not on Maven Central; [the phone
  book](../examples/lessons/phone_book) does the same with Confluent's client for Python. Its stock prices are printed in
  pieces without imports; they run from [our own text](../tests/lessons/java/StockPrices.java).
* The guide's programs for Spark are in Scala 2.11 and name Spark 2.1, which needs Java 8; later versions of Spark are in
  [works-with.md](works-with.md). Its programs in Avro need Confluent's serializer, too.
* The other snippets of the documents are parts of a function, and are in the labs above.
"""


def read() -> dict[str, Any]:
    """documents: title by key; lab: one row per lab."""
    return tomllib.loads((HERE / "labs.toml").read_text("utf-8"))


def page() -> str:
    """The whole of docs/lessons.md."""
    data = read()
    counts = Counter(lab["state"] for lab in data["lab"])
    lines = [HEAD, "| state | labs | |", "|---|---|---|"]
    lines += [f"| {state} | {counts[state]} | {said} |" for state, said in STATES.items() if counts[state]]
    for key, title in data["documents"].items():
        lines += ["", f"## {title}", "", "| lab | place | state | runs in |", "|---|---|---|---|"]
        for lab in data["lab"]:
            if lab["document"] == key:
                runs = ", ".join(link(path) for path in lab["runs"])
                lines.append(f"| {lab['title']} | {lab['place']} | {lab['state']} | {runs} |")
    return "\n".join(lines) + "\n" + PRINTED_HEAD + printed() + NOT_RUN


def printed() -> str:
    """The rows of the programs of printed.toml."""
    rows = tomllib.loads((HERE / "printed.toml").read_text("utf-8"))["program"]
    return "".join(
        f"| {row['place']} | {row['document']} | {row['language']} | {row['state']} | {row.get('note', '')} |\n"
        for row in rows
    )


def link(path: str) -> str:
    return f"[{path}](../{path})"


if __name__ == "__main__":
    print(page(), end="")
