"""Kafka Streams' TopologyTestDriver and ours on the same generated topologies and histories, side by side."""

from __future__ import annotations

import gzip
import os
import subprocess

import pytest

from tests.pipelines.test_kafka_streams import program
from tests.support.generated_streams import alike, case, played, told
from tests.unit.streams.test_against_kafka_streams import RECORDED

RECORDED_CASES = 400


def written(seeds: range) -> list[str]:
    """What Java writes for each seed."""
    text = "".join(told(*case(seed)) for seed in seeds)
    done = subprocess.run(program("Generated"), input=text, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split("END\n")[:-1]


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_fresh_cases_are_alike():
    """BARNABAS_STREAMS_CASES says how many; BARNABAS_RECORD=1 writes the first ones where the quick test finds them."""
    seeds = range(int(os.environ.get("BARNABAS_STREAMS_CASES", "2000")))
    cases = written(seeds)
    if os.environ.get("BARNABAS_RECORD"):
        text = "".join(f"{part}END\n" for part in cases[:RECORDED_CASES])
        RECORDED.write_bytes(gzip.compress(text.encode(), mtime=0))
    for seed, part in zip(seeds, cases, strict=True):
        steps, records = case(seed)
        theirs = [line.split("\t") for line in part.splitlines()]
        assert alike(steps, list(played(steps, records))) == alike(steps, theirs), (seed, steps, records)
