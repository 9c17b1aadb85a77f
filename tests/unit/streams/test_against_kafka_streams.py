"""The test driver writes what Kafka Streams' TopologyTestDriver writes: random topologies and histories with late records,
nulls and deletes.

`recorded.txt.gz` has what Java wrote for the seeds from 0 on, one case after the other (tests/pipelines/streams/;
test_streams_witness.py there records anew, and plays fresh cases).
"""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.support.generated_streams import alike, case, played

RECORDED = Path(__file__).parent / "recorded.txt.gz"
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_the_driver_writes_what_kafka_streams_writes(part: int) -> None:
    cases = gzip.decompress(RECORDED.read_bytes()).decode().split("END\n")[:-1]
    assert len(cases) >= 400
    for seed in range(part, len(cases), PARTS):
        theirs = [line.split("\t") for line in cases[seed].splitlines()]
        steps, records = case(seed)
        ours = list(played(steps, records))
        assert alike(steps, ours) == alike(steps, theirs), (seed, steps, records)
