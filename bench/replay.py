"""`python -m bench.replay`: how long a replay of one dead letter out of 200,000 takes. See README.md.

Letters are written as the sink writes them, then one of them is repaired and put through. Timed is the replay itself, in
a session that has run queries before, as in a pipeline server; and the whole command beside it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from barnabas.client.blocking import BlockingClient, NewTopic
from barnabas.pipelines.formats.columns import ARROW_TYPES, append_batch
from barnabas.pipelines.fronts.yaml.spec import load_spec
from barnabas.pipelines.serving.replay import replay
from barnabas.pipelines.spark.session.start import build_archive, start_session
from barnabas.records.columnar_encoder import BatchEncoder
from bench.brokers import Barnabas

BUDGET_S = 3.0
BATCH = 10_000
TEXT = """
pipeline: replayed
source: {topic: replayed-in}
steps: [parse: {json: {id: int, n: int}}]
outputs:
  - topic: replayed-out
"""


def letters(first: int, count: int) -> pa.RecordBatch:
    """Dead letters as the pipeline writes them."""
    numbers = range(first, first + count)

    def headers(number: int) -> list[dict[str, object]]:
        headers_of_letter = {
            "pipeline": "replayed", "step": "1 parse", "topic": "replayed-in", "partition": 0, "offset": number,
            "reason": "the JSON does not have the declared types: ",
        }  # fmt: skip
        return [
            {"key": f"barnabas.{name}", "value": str(value).encode()}
            for name, value in headers_of_letter.items()
        ]

    values = [b'{"id": %d, "n": "%d x"}' % (number, number) for number in numbers]
    return pa.record_batch(
        {
            "value": pa.array(values, pa.binary()),
            "headers": pa.array([headers(n) for n in numbers], ARROW_TYPES["headers"]),
        }
    )


def fill(client: BlockingClient, count: int) -> None:
    client.create_topics([NewTopic(f"replayed-{name}", 1) for name in ("in", "out", "dead-letters")])
    for first in range(0, count, BATCH):
        encoder = BatchEncoder(1)
        append_batch(encoder, letters(first, min(BATCH, count - first)), int(time.time() * 1000))
        for batch in encoder.flush():
            client.produce_raw("replayed-dead-letters", 0, batch.data)


def measure(bootstrap: str, file: Path, count: int, rounds: int) -> None:
    with BlockingClient(bootstrap) as client:
        fill(client, count)
    spec = load_spec(file)
    spark = start_session("bench replay", archive=build_archive(), log_file=file.with_name("spark.log"))
    for number in range(rounds):
        where = f"value LIKE '{{\"id\": {count // 2 + number},%'"
        repair = "replace(replace(value, '\"n\": \"', '\"n\": '), ' x\"', '')"
        begun = time.monotonic()
        report = replay(spark, spec, bootstrap, where=where, repair=repair)
        took = time.monotonic() - begun
        assert (report.found, report.replayed) == (count - number, 1), report
        print(f"1 of {report.found:,} letters: {took:.2f} s (budget {BUDGET_S:g} s)", flush=True)
    spark.stop()
    command = [
        sys.executable,
        "-m",
        "barnabas",
        "pipeline",
        "replay-dead-letters",
        str(file),
        "-b",
        bootstrap,
    ]
    begun = time.monotonic()
    subprocess.run([*command, "--where", "offset = 7", "--dry-run"], check=True)
    print(f"the whole command, with Spark's start: {time.monotonic() - begun:.2f} s")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.replay", description=__doc__.splitlines()[0])
    parser.add_argument("--letters", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        file = folder / "replayed.yaml"
        file.write_text(TEXT)
        broker = Barnabas(folder / "broker")
        broker.start()
        try:
            measure(f"127.0.0.1:{broker.port}", file, arguments.letters, arguments.rounds)
        finally:
            broker.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
