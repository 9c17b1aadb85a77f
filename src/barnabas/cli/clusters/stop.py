"""`barnabas stop`: asks brokers that this user runs on this machine to stop, and waits until they have.

Without options it stops the brokers of one `barnabas start`; where there are several, it says which, and stops none.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from barnabas.local.brokers import brokers_here, starts
from barnabas.local.start import Parser
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK
from barnabas.terminal.output import print_json

LOOK_SECONDS: Final = 0.05


def parser() -> argparse.ArgumentParser:
    """The options of `barnabas stop`."""
    arguments = Parser(
        prog="barnabas stop",
        description="Stop the broker that you run on this machine; it finishes what it has begun.",
        epilog="Example:\n  barnabas stop\n  barnabas stop --node 2\n  barnabas stop --data /var/lib/barnabas\n",
    )
    arguments.add_argument("--node", metavar="ID", help="Only the broker with this node.id.")
    arguments.add_argument(
        "--data", metavar="DIR", type=Path, help="Only the brokers with a log dir in this folder."
    )
    arguments.add_argument(
        "-a", "--all", action="store_true", help="Every broker that you run on this machine."
    )
    arguments.add_argument(
        "--timeout", metavar="SECONDS", type=float, default=60.0, help="How long to wait. Default: 60."
    )
    arguments.add_argument("--json", action="store_true", help="Print JSON on standard output.")
    arguments.add_argument("-q", "--quiet", action="store_true", help="Say nothing when all goes well.")
    arguments.add_argument("-v", "--verbose", action="store_true", help="Show where an error comes from.")
    return arguments


def main(arguments: Sequence[str]) -> int:
    """Send SIGTERM and wait; 1 when there was no broker, or a broker has not ended in time."""
    try:
        options = parser().parse_args(arguments)
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else EXIT_OK
    brokers = [
        broker
        for broker in brokers_here()
        if options.node in (None, broker.node_id) and (options.data is None or broker.uses(options.data))
    ]
    if not brokers:
        meant = "" if options.node is None else f" with node.id {options.node}"
        meant += "" if options.data is None else f" with a log dir in {options.data}"
        print(f"barnabas stop: no broker of yours{meant} runs on this machine", file=sys.stderr)
        return EXIT_FAILED
    if len(starts(brokers)) > 1 and not options.all:
        print(
            f"barnabas stop: {len(brokers)} brokers of yours run on this machine, and none was stopped; say which with "
            "--node ID or --data DIR, or --all:",
            *[f"  {broker}" for broker in brokers],
            sep="\n",
            file=sys.stderr,
        )
        return EXIT_FAILED
    for broker in brokers:
        os.kill(broker.pid, signal.SIGTERM)
    deadline = time.monotonic() + options.timeout
    while left := {broker.pid for broker in brokers} & {broker.pid for broker in brokers_here()}:
        if time.monotonic() > deadline:
            pids = ", ".join(map(str, sorted(left)))
            print(
                f"barnabas stop: process {pids} is still stopping after {options.timeout:g} s",
                file=sys.stderr,
            )
            return EXIT_FAILED
        time.sleep(LOOK_SECONDS)
    if options.json:
        print_json(
            [{"node_id": broker.node_id, "pid": broker.pid, "result": "stopped"} for broker in brokers]
        )
        return EXIT_OK
    for broker in [] if options.quiet else brokers:
        print(f"stopped broker {broker.node_id} (process {broker.pid})")
    return EXIT_OK
