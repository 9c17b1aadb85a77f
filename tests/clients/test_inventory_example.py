"""The product-inventory example, run as its README says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.process import free_port

SCRIPT = Path(__file__).parents[2] / "examples" / "product_inventory" / "run.sh"


def test_a_new_consumer_reads_what_compaction_kept() -> None:
    environment = {**os.environ, "PORT": str(free_port())}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        ["sh", str(SCRIPT)], env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    kept = done.stdout.partition("a new consumer reads:\n")[2].splitlines()
    assert kept == [
        '3  123 {"NB":"8"}',
        '4  456 {"PAD":"5"}',
        '5  789 {"TV":"13"}',
        '6  123 {"NB":"7"}',
        '7  456 {"PAD":"4"}',
    ]
