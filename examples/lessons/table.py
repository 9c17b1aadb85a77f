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


TYPED_HEAD: Final = """
## Commands as they are printed

The pages below type what the documents type for Kafka's tools: the same commands with the same options, ports and host
names, in the order of the document, with what they print here. They begin with a folder like that of an unpacked Kafka,
which the labs assume and which one command makes:

    mkdir -p ~/kafka-training && cd ~/kafka-training
    barnabas config samples --home kafka

Lines that begin with `>` are typed into a command; `...` says that a command goes on, in a terminal of its own; `^C` is
Ctrl-C. Containers of a course are not needed: its host names (`zookeeper`, `kafka`, `broker-1`) can stand beside
`localhost` in `/etc/hosts`. `make soak` runs each page on a machine of its own and compares what it prints
(`tests/lessons/test_walks.py`); every run of the tests checks that no command of a document is missing:
`examples/lessons/as_printed/elsewhere.toml` names those that no page types as they are, with the reason.

| page | labs | commands |
|---|---|---|
"""
TYPED_NOT: Final = """
What a student sees otherwise than the documents show, which are about Kafka 0.10 to 2.3, while the tools here are those of
Kafka 4:

* `kafka-topics --create` writes the name without quotation marks; `--describe` adds `TopicId`, `Elr` and `LastKnownElr`.
* `kafka-configs --describe` writes one line for each setting, with the levels at which it is set.
* A consumer of the ZooKeeper age (`--zookeeper`) does not warn that it is deprecated: it is the new consumer.
* A server prints one line that begins with `ready` instead of its settings.
* A partition without a record has no index files yet.
* `kafka-run-class kafka.tools.DumpLogSegments` shows records in today's format, below their batch.
* A broker is not called `java`: `ps aux | grep java | grep server-0.properties` finds nothing; leave out `grep java`.
"""
PRINTED_HEAD: Final = """
## Programs as they are printed

The guide, the course of 2018 and the platform course print programs. `tests/lessons/test_printed.py` takes each from its
document (which is not part of this repository; the test is skipped where it is missing), compiles it against a client of
its time (Kafka's client 2.8.2 and 0.10.2.2 for Java, Flink 1.6.1, Spark 3.5.5 with Scala 2.12, Shopify's sarama 1.38,
Confluent's client 1.9 for Go, kafka-python, Debian's librdkafka 2.0), and runs it against a broker, whose address replaces
the printed one. No other change is made where the state is *runs*; *mended* programs do not compile or do not work as
printed, and the last column says why.
`examples/lessons/printed.toml` has each change, and `pieces.toml` those of programs that the course of 2018 prints in
pieces, each on a slide of its own, put together: its stock prices, with the libraries of its time.

| program | document | language | state | what the print lacks |
|---|---|---|---|---|
"""
NOT_RUN: Final = """
Other programs of the documents:

* The guide names kits for PHP, Node.js and C++, but prints no program in these languages; their clients are librdkafka and
  kafkajs, which other tests use.
* The course's programs in Avro need `io.confluent:kafka-avro-serializer`, which is not on Maven Central; [the phone
  book](../examples/lessons/phone_book) does the same with Confluent's client for Python. So it is with its programs in
  Protobuf.
* The guide's programs in Avro need Confluent's serializer, too.
* The other snippets of the documents are single settings, and are in the labs above.
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
    return "\n".join(lines) + "\n" + TYPED_HEAD + typed() + TYPED_NOT + PRINTED_HEAD + printed() + NOT_RUN


def typed() -> str:
    """The rows of the pages of as_printed."""
    rows = []
    for file in sorted((HERE / "as_printed").glob("*.md")):
        lines = file.read_text("utf-8").splitlines()
        commands = sum(line.startswith("$ ") for line in lines)
        path = f"examples/lessons/as_printed/{file.name}"
        rows.append(f"| {link(path)} | {lines[0].removeprefix('# ')} | {commands} |\n")
    return "".join(rows)


def printed() -> str:
    """The rows of the programs of printed.toml."""
    rows = [
        row
        for name in ("printed.toml", "pieces.toml")
        for row in tomllib.loads((HERE / name).read_text("utf-8"))["program"]
    ]
    return "".join(
        f"| {row['place']} | {row['document']} | {row['language']} | {row['state']} | {row.get('note', '')} |\n"
        for row in rows
    )


def link(path: str) -> str:
    return f"[{path}](../{path})"


if __name__ == "__main__":
    print(page(), end="")
