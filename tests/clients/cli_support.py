"""Runs the `barnabas` command as a user does: as a process, by its output and exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import preloaded

TIMEOUT_SECONDS = 240


def _hear_signals() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@dataclass
class Cli:
    """`cli("topic", "list")` runs `barnabas topic list` against one broker."""

    bootstrap: str

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "barnabas", *arguments]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "BARNABAS_BOOTSTRAP": self.bootstrap}

    def __call__(
        self, *arguments: str, stdin: bytes = b"", code: int = 0, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Run to the end; fails when the exit code is not `code`."""
        done = preloaded.run(
            self.command(*arguments),
            input=stdin, capture_output=True, env=self.environment(), timeout=TIMEOUT_SECONDS, cwd=cwd,
        )  # fmt: skip
        assert done.returncode == code, (arguments, done.returncode, done.stdout[-500:], done.stderr[-2000:])
        return done

    def out(self, *arguments: str, stdin: bytes = b"") -> bytes:
        return self(*arguments, stdin=stdin).stdout

    def json(self, *arguments: str, stdin: bytes = b"") -> Any:
        return json.loads(self.out(*arguments, "--json", stdin=stdin))

    def start(self, *arguments: str, **pipes: Any) -> subprocess.Popen[bytes]:
        """Start and leave running. Signals end it also where the tests themselves run under nohup."""
        return subprocess.Popen(
            self.command(*arguments), env=self.environment(), preexec_fn=_hear_signals, **pipes
        )

    def topic(self, *, partitions: int = 1, **config: str) -> str:
        """A fresh topic."""
        name = f"cli-{uuid.uuid4().hex[:8]}"
        options = [
            word for item in config.items() for word in ("-c", f"{item[0].replace('_', '.')}={item[1]}")
        ]
        self("topic", "create", name, "--partitions", str(partitions), *options)
        return name
