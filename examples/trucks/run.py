"""Alerts about drivers with dangerous events: starts a broker, sends events, runs the pipeline twice, shows the alerts.

    python examples/trucks/run.py [--data DIR] [--port PORT]

The second run goes on from the states of the first. Everything is kept below DIR (data/trucks).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
FIRST = [
    ("Ada", "lane departure", "09:00"),
    ("Blaise", "overspeed", "09:01"),
    ("Ada", "normal", "09:02"),
    ("Ada", "overspeed", "09:08"),
]
SECOND = [
    ("Ada", "unsafe following distance", "09:05"),
    ("Blaise", "overspeed", "09:14"),
    ("Carl", "normal", "09:15"),
    ("Blaise", "lane departure", "09:30"),
]


class Failed(Exception):
    """The example cannot continue; one line says why."""


def barnabas(*arguments: str, text: str | None = None, shown: bool = False) -> str:
    """Runs a command; its output. shown: prints both."""
    command = [sys.executable, "-m", "barnabas", *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"barnabas {' '.join(arguments)}: {done.stderr.strip()}")
    if shown:
        print(f"\n$ barnabas {' '.join(arguments)}\n{done.stdout}", end="", flush=True)
    return done.stdout


def lines(events: list[tuple[str, str, str]]) -> str:
    """Records as `barnabas produce` reads them: key, tab, value."""
    rows = [
        {"driver": driver, "truck": 7, "event": event, "at": f"2026-01-31T{time}:00Z"}
        for driver, event, time in events
    ]
    return "".join(f"{row['driver']}\t{json.dumps(row)}\n" for row in rows)


def show(address: str, data: Path) -> None:
    """Sends events in two parts, each followed by a run, and shows the alerts."""
    pipeline = str(HERE / "pipeline.yaml")
    barnabas("topic", "create", "truck-events", "-p", "2", "--if-not-exists", "-b", address)
    for events in (FIRST, SECOND):
        barnabas("produce", "truck-events", "-K", "\\t", "-b", address, text=lines(events))
        told = ("--once", "-b", address, "--checkpoints", str(data / "checkpoints"))
        barnabas("pipeline", "run", pipeline, *told)
    whole = ("-o", "beginning", "-e", "-f", "%k %s\\n")
    barnabas("consume", "truck-alerts", "-b", address, *whole, shown=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=PROJECT / "data" / "trucks")
    parser.add_argument("--port", type=int, default=9092)
    options = parser.parse_args()
    address = f"127.0.0.1:{options.port}"
    options.data.mkdir(parents=True, exist_ok=True)
    start = ("start", "--data", str(options.data / "broker"), "--listen", address)
    with (options.data / "broker.log").open("a") as log:
        command = [sys.executable, "-m", "barnabas", *start]
        broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    assert broker.stdout is not None
    try:
        if not broker.stdout.readline().startswith("ready"):
            raise Failed(f"the broker did not start: see {log.name}")
        show(address, options.data)
    except Failed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        broker.terminate()
        broker.wait(60)
        broker.stdout.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
