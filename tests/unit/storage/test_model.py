"""Random lives of a log against a dictionary. BARNABAS_SEED and BARNABAS_STEPS run other and longer ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.storage.model import COMPACTED, run

SEEDS = [int(os.environ["BARNABAS_SEED"])] if "BARNABAS_SEED" in os.environ else list(range(8))
STEPS = int(os.environ.get("BARNABAS_STEPS", "400"))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_log_does_what_a_dictionary_does(seed: int, tmp_path: Path) -> None:
    run(seed, STEPS, tmp_path / "t-0")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_compacted_log_does_what_a_dictionary_does(seed: int, tmp_path: Path) -> None:
    run(seed, STEPS, tmp_path / "t-0", COMPACTED)
