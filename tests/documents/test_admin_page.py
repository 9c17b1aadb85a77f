"""The programs in docs/admin.md are run one after the other on one broker, and print what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from barnabas.testing import Broker

PAGE = Path(__file__).parents[2] / "docs" / "admin.md"
PROGRAM = re.compile(r"```python\n(.*?)```\n\n```\n(.*?)```", re.DOTALL)


def test_the_programs_of_the_page_print_what_it_says() -> None:
    programs = PROGRAM.findall(PAGE.read_text("utf-8"))
    assert len(programs) == PAGE.read_text("utf-8").count("```python")
    with Broker() as broker:
        for code, shown in programs:
            program = code.replace("localhost:9092", broker.bootstrap)
            done = subprocess.run(
                [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
            )
            assert (done.stdout, done.stderr) == (shown, "")
