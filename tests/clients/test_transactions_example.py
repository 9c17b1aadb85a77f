"""The programs of examples/transactions, run as their README says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.cli_support import Cli

FOLDER = Path(__file__).parents[2] / "examples" / "transactions"


def run(name: str, *arguments: str, cwd: Path, code: int = 0) -> str:
    command = [sys.executable, str(FOLDER / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=240, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout


def shown(name: str) -> str:
    """What the README says that a program prints."""
    page = (FOLDER / "README.md").read_text()
    block = page.partition(f"    python {name}\n\nprints\n\n")[2].partition("\n\n")[0]
    return "".join(line.removeprefix("    ") + "\n" for line in block.splitlines())


def test_the_programs_do_what_their_page_says(own_broker, tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")
    bootstrap = own_broker().bootstrap
    cli = Cli(bootstrap)
    for topic, partitions in (("debits", "2"), ("credits", "2"), ("statements", "1")):
        cli("topic", "create", topic, "--partitions", partitions)
    assert run("transfer.py", bootstrap, cwd=tmp_path) == shown("transfer.py")
    assert run("statements.py", bootstrap, cwd=tmp_path) == shown("statements.py")
    assert run("statements.py", bootstrap, cwd=tmp_path) == "0 lines written\n"
    lines = cli("consume", "statements", "-o", "beginning", "-e", "-f", "%s\n").stdout.decode().splitlines()
    amounts = sorted((line["account"], line["amount"]) for line in map(json.loads, lines))
    assert amounts == [("alice", -100), ("alice", -40), ("bob", 100), ("carol", 40)]
    run("balances.py", bootstrap, "--die-after", "3", cwd=tmp_path, code=-9)
    assert run("balances.py", bootstrap, cwd=tmp_path) == shown("balances.py")
    assert "0 records booked" in run("balances.py", bootstrap, cwd=tmp_path)
