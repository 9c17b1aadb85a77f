"""Requests made from the services' OpenAPI documents by schemathesis: none of them is answered with a server's error."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.test_rest import Together

EXAMPLES = "10"
SERVICES = ("registry", "rest", "reporting")


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_requests_from_the_documents(tmp_path: Path) -> None:
    program = shutil.which("st", path=str(Path(sys.executable).parent)) or shutil.which("st")
    if program is None:
        pytest.skip("schemathesis is not installed")
    together = Together(tmp_path)
    try:
        for name in SERVICES:
            base = f"http://{getattr(together, name)}"
            command = [program, "run", f"{base}/openapi.json", "--url", base, "--phases", "coverage,fuzzing"]
            command += ["--checks", "not_a_server_error", "--max-examples", EXAMPLES, "--no-color"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=tmp_path)
            assert done.returncode == 0, f"{name}: {done.stdout[-4000:]}{done.stderr[-1000:]}"
    finally:
        assert together.end() == 0
    assert "Traceback" not in together.log.read_text()
