"""kafka-server-stop: asks the brokers of this machine and user to stop."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Final

from barnabas.kafka_tools.shared.common import parse, say
from barnabas.kafka_tools.shared.parser import Opt, Tool
from barnabas.local.process_list import is_broker, node_of, processes
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK

TOOL: Final = Tool(
    "This tool stops the brokers that this user runs on this machine; each finishes what it has begun.",
    (
        Opt("all", "Every broker of this user: the default."),
        Opt("node-id", "Only the broker with this id.", "ID"),
        Opt("process-role", "Of KRaft: broker or controller.", "ROLE", old=True),
        Opt("help", "Print usage information."),
        Opt("version", "Display the version."),
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Send SIGTERM; the exit code says whether there was a broker."""
    parsed = parse(TOOL, arguments or ["--all"])
    wanted = parsed.get("node-id")
    pids = [pid for pid, words in processes() if is_broker(words) and wanted in (None, node_of(words))]
    if not pids:
        say(f"No kafka server to stop{f' with node-id {wanted}' if wanted else ''}")
        return EXIT_FAILED
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    return EXIT_OK
