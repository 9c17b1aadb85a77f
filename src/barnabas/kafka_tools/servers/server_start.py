"""kafka-server-start: `barnabas start` with a property file."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK

LOOK_SECONDS: Final = 0.05


def main(arguments: Sequence[str]) -> int:
    """kafka-server-start [-daemon] server.properties [--override name=value]*; the broker's exit code."""
    words = list(arguments)
    daemon = bool(words) and words[0] == "-daemon"
    if daemon:
        words.pop(0)
    if not words or words[0] in ("-h", "--help"):
        print(
            "USAGE: kafka-server-start [-daemon] server.properties [--override property=value]*",
            file=sys.stderr,
        )
        return EXIT_FAILED
    options = ["--config", words[0]]
    rest = words[1:]
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if name != "--override" or not (equals or rest):
            print(f"kafka-server-start: {word!r} is not --override property=value", file=sys.stderr)
            return EXIT_FAILED
        options += ["-o", value if equals else rest.pop(0)]
    if daemon:
        return start_daemon(options)
    from barnabas.local.start import main as start

    return start(options)


def start_daemon(options: Sequence[str]) -> int:
    """Start the broker in the background, in a session of its own; 0 once it says that it is ready.

    As with Kafka, its output goes to kafkaServer.out in $LOG_DIR: a daemon that kept a terminal or an ssh session
    open would keep the session from ending.
    """
    import subprocess

    path = log_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as out:
        begin = out.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", "barnabas", "start", *options],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    while True:
        ended = process.poll() is not None
        with path.open("rb") as log:
            log.seek(begin)
            lines = log.read().decode(errors="replace").splitlines()
        ready = next((line for line in lines if line.startswith("ready")), None)
        if ready is not None:
            print(f"{ready}\nits log: {path}")
            return EXIT_OK
        if ended:
            print(
                "\n".join([*lines, f"kafka-server-start: the broker did not start; its log: {path}"]),
                file=sys.stderr,
            )
            return EXIT_FAILED
        time.sleep(LOOK_SECONDS)


def log_file() -> Path:
    """Where a daemon's output goes: $LOG_DIR as with Kafka, else the user's state folder."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(os.environ.get("LOG_DIR") or f"{state}/barnabas/logs") / "kafkaServer.out"
