"""Every session in the documents prints what they say. `pytest tests/documents --rewrite` brings pages up to date."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.documents.sessions import ROOT, masked, rewrite_page, steps_of
from tests.documents.stages import STAGES

NOT_RUN = {
    "docs/agent.md": "shows an agent at work; tests/clients/test_cli_agent_config.py runs the same",
    "docs/logs.md": "searches logs that are not there; tests/clients/test_cli_logs.py runs the same",
    "examples/logs/README.md": "an agent and a watch that run on; tests/clients/test_cli_logs.py runs the same",
    "docs/groups.md": "three members of three clients; the command line is checked by test_commands.py",
    "docs/transactions.md": "a transaction is under way in another program; tests/clients/test_cli_txn.py runs the same",
    "docs/pipelines.md": "starts Spark for each command; tests/pipelines compares what it shows",
    "docs/sql.md": "starts Spark; tests/pipelines/test_sql_server.py types statements like its own",
    "docs/connect.md": "a worker and its databases; tests/connect types the same",
    "docs/mirroring.md": "two clusters and a link that runs on; tests/clients/test_links.py runs the same",
    "docs/streams.md": "starts Spark; tests/pipelines/test_streams.py runs the same",
    "docs/monitoring.md": "shows rates of a cluster that has run for hours; tests/clients/test_monitor.py runs the same",
    "examples/trucks/README.md": "starts Spark; its own test runs it",
}


def pages_with_sessions() -> list[str]:
    """All but the lessons, which tests/lessons runs."""
    pages = [
        ROOT / "README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "examples").rglob("*.md")),
    ]
    lessons = ROOT / "examples" / "lessons"
    return [str(page.relative_to(ROOT)) for page in pages if lessons not in page.parents and steps_of(page)]


def test_no_page_is_forgotten() -> None:
    assert set(pages_with_sessions()) == STAGES.keys() | NOT_RUN.keys()


@pytest.mark.parametrize("page", STAGES)
def test_a_page_says_what_happens(
    page: str, own_broker: Callable[..., Any], tmp_path: Path, rewrite: bool
) -> None:
    stage = STAGES[page](own_broker, tmp_path)
    different, steps_run = [], {}
    with stage.cleanup:
        for step in steps_of(ROOT / page):
            stage.prepare(step)
            printed = stage.shell.run(step.command)
            wanted, got = masked(step.shown), masked(printed)
            if stage.is_loose(step):
                wanted, got = wanted[:1], got[:1]
            if wanted != got:
                different.append(f"{step.name}: $ {step.command}\nthe page says\n" + "\n".join(step.shown)
                                 + "\nand it prints\n" + "\n".join(printed))  # fmt: skip
                steps_run[step.line] = (step, printed)
    if rewrite:
        rewrite_page(ROOT / page, steps_run)
        return
    assert not different, "\n\n".join(different)
