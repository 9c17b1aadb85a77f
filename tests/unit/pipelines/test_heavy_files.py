"""Pipeline files that mean far more than they say are refused before they take time or memory."""

from __future__ import annotations

import pytest

from barnabas.pipelines.entries.document import VALUES_MAX, parse
from barnabas.pipelines.plan.errors import PipelineError

ALIASES = "a0: &a0 [x, x]\n" + "\n".join(
    f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]" for n in range(9)
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (ALIASES, f"file:[0-9]+: the file has more than {VALUES_MAX} values, with aliases written out"),
        ("steps: &steps [*steps]", "nested more than 100 levels deep"),
        ("steps: " + "[" * 200_000, "nested more than 100 levels deep"),
        ("steps: [" + "a, " * VALUES_MAX + "a]", "more than"),
    ],
)
def test_heavy_files_are_refused(text: str, reason: str) -> None:
    with pytest.raises(PipelineError, match=reason):
        parse(text, "file")


def test_aliases_are_written_out() -> None:
    entries = parse("a: &a [x, y]\nb: *a", "file")
    assert entries.mapping()["b"].texts() == ("x", "y")
