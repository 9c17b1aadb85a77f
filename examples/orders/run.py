"""Totals by customer and hour, looked up by key: starts a broker and a server of pipelines, sends orders, looks rows up.

    python examples/orders/run.py [--data DIR] [--port PORT] [--url-port PORT]

Everything is kept below DIR (data/orders). A second run adds the same orders again, so the totals double.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
CUSTOMERS = {
    "C1": {"name": "Ada", "city": "London"},
    "C2": {"name": "Blaise", "city": "Paris"},
    "C3": {"name": "Carl", "city": "Brunswick"},
}
WAIT_SECONDS = 240.0


class Failed(Exception):
    """The example cannot continue; one line says why."""


def barnabas(*arguments: str, text: str | None = None, shown: bool = False, fails: bool = False) -> str:
    """Runs a command; its output. shown: prints both. fails: it may exit with 1."""
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", *arguments],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and not fails:
        raise Failed(f"barnabas {' '.join(arguments)}: {done.stderr.strip()}")
    if shown:
        print(f"\n$ barnabas {' '.join(arguments)}\n{done.stdout}{done.stderr}", end="", flush=True)
    return done.stdout


@contextlib.contextmanager
def running(*arguments: str, log: Path) -> Iterator[None]:
    """Runs a server until the block ends."""
    with log.open("a") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "barnabas", *arguments], stdout=subprocess.PIPE, stderr=errors, text=True
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line.startswith("ready"):
            raise Failed(f"barnabas {arguments[0]} did not start: see {log}")
        print(line.strip(), flush=True)
        yield
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def orders() -> list[dict[str, Any]]:
    """Some orders of two hours of a morning."""
    amounts = ["19.90", "5.00", "12.50", "7.25"]
    return [
        {
            "id": number,
            "customer": f"C{number % 3 + 1}",
            "at": f"2026-01-31T{9 + number % 2:02}:{number % 60:02}:00Z",
            "amount": amounts[number % 4],
        }
        for number in range(120)
    ]


def send(address: str) -> None:
    """Creates the topics, and writes customers and orders."""
    for topic, config in (("orders", ()), ("customers", ("--config", "cleanup.policy=compact"))):
        barnabas("topic", "create", topic, "-p", "2", *config, "--if-not-exists", "-b", address)
    customers = [f"{key}\t{json.dumps({'customer': key, **value})}" for key, value in CUSTOMERS.items()]
    barnabas("produce", "customers", "-K", "\\t", "-b", address, text="\n".join(customers) + "\n")
    lines = [f"{order['customer']}\t{json.dumps(order)}" for order in orders()]
    barnabas("produce", "orders", "-K", "\\t", "-b", address, text="\n".join(lines) + "\n")


def wait_for_totals(url: str) -> None:
    """Waits until every order is in the totals, by looking them up."""
    give_up = time.monotonic() + WAIT_SECONDS
    total = 0
    while time.monotonic() < give_up:
        totals = barnabas("pipelines", "get", "orders/totals", "--all", "--json", "-u", url, fails=True)
        total = sum(row["orders"] for row in json.loads(totals)["rows"]) if totals else 0
        if total and total % len(orders()) == 0:
            return
        time.sleep(0.5)
    raise Failed(f"only {total} orders are in the totals after {WAIT_SECONDS:g} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=PROJECT / "data" / "orders")
    parser.add_argument("--port", type=int, default=9092)
    parser.add_argument("--url-port", type=int, default=8084)
    options = parser.parse_args()
    address, url = f"127.0.0.1:{options.port}", f"http://127.0.0.1:{options.url_port}"
    data: Path = options.data
    data.mkdir(parents=True, exist_ok=True)
    server = (
        "pipelines",
        "serve",
        "--data",
        str(data / "pipelines"),
        "--listen",
        f"127.0.0.1:{options.url_port}",
    )
    try:
        with running("start", "--data", str(data / "broker"), "--listen", address, log=data / "broker.log"):
            send(address)
            with running(*server, "-b", address, log=data / "server.log"):
                barnabas("pipelines", "add", str(HERE / "pipeline.yaml"), "-u", url)
                wait_for_totals(url)
                for arguments in (
                    ("views", "orders"),
                    ("get", "orders/totals", "C2"),
                    ("get", "orders/totals", "C2", "--window", "2026-01-31T09:30:00Z"),
                    ("get", "orders/totals", "--window", "2026-01-31T10:00:00Z/2026-01-31T11:00:00Z"),
                    ("get", "orders/newest", "--from", "C2", "--to", "C4"),
                    ("get", "orders/totals", "C2", "--json"),
                ):
                    barnabas("pipelines", *arguments, "-u", url, shown=True)
                barnabas(
                    "consume",
                    "orders-totals",
                    "-b",
                    address,
                    "-o",
                    "beginning",
                    "-e",
                    "-f",
                    "%k %s\\n",
                    shown=True,
                )
    except Failed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
