"""What reaches behind PySpark's public interface stands in one module."""

from __future__ import annotations

import re
from pathlib import Path

import barnabas.pipelines

PRIVATE = re.compile(
    r"\._j(vm|df|sc|sq|c|sparkSession|reader|write)\b|\b_gateway\b|_accumulatorServer|_active_spark_context"
)


def test_one_module_reaches_into_spark():
    folder = Path(barnabas.pipelines.__file__).parent
    lines = [
        f"{path.relative_to(folder)}:{number}: {line.strip()}"
        for path in sorted(folder.rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if path != folder / "spark" / "private.py" and PRIVATE.search(line)
    ]
    assert lines == []
