"""kafka-server-start: `barnabas start` with a property file."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from barnabas.cli.errors import EXIT_FAILED


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
    from barnabas.cli.start import main as start

    return start(options)


def start_daemon(options: Sequence[str]) -> int:
    """Start the broker in the background, in a session of its own; 0 once it says that it is ready."""
    import subprocess

    process = subprocess.Popen(
        [sys.executable, "-m", "barnabas", "start", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    print(line.decode(errors="replace"), end="")
    return 0 if line.startswith(b"ready") else EXIT_FAILED
