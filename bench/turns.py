"""How long the heaviest legal request of each API makes others wait: `python -m bench.turns [--scale 0.1] [--only TEXT]`.

A broker gets the requests of `turns_rows` one after the other. Meanwhile a client asks for the API versions every
millisecond, and the broker's process looks at the clock in each turn of its loop. What counts is the processor time of the
loop's thread in one turn, which other programs on the machine hardly change: no turn above 20 ms. The waits of the client
are by the clock: p99 under 10 ms on a quiet machine. `results/turns.md` and `turns.json`; exit code 1 if a turn was longer.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final, Self

from barnabas.client.connection import BrokerConnection
from barnabas.client.options import ClientOptions, parse_bootstrap
from barnabas.runtime.garbage import ShortCollections
from barnabas.runtime.watchdog import Watchdog
from barnabas.testing import Broker
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages import response_class
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.schema import Struct
from bench.report import aligned, machine, markdown
from bench.requests import BenchError, Wire
from bench.turns_rows import PRODUCER, ROWS, Heavy

RESULTS: Final = Path(__file__).parent / "results"
TURN_MS_MAX: Final = 20.0
PING_S: Final = 0.001
AFTER_S: Final = 3.0
ANSWER_TIMEOUT_S: Final = 1800.0
OPTIONS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "message.max.bytes": "104857600",
    "socket.request.max.bytes": "1073741824",
}


# --- in the broker's process ---------------------------------------------------------------------------


class Turns:
    """Looks at the clocks once in every turn of the loop, which does not sleep meanwhile."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.longest_ms = self.longest_cpu_ms = 0.0
        self.over = self.count = 0
        self._loop, self._ends = loop, False
        self._then_s, self._then_cpu_s = time.monotonic(), time.thread_time()

    def look(self) -> None:
        now_s, cpu_s = time.monotonic(), time.thread_time()
        cpu_ms = (cpu_s - self._then_cpu_s) * 1000
        self.longest_ms = max(self.longest_ms, (now_s - self._then_s) * 1000)
        self.longest_cpu_ms = max(self.longest_cpu_ms, cpu_ms)
        self.over += cpu_ms > TURN_MS_MAX
        self.count += 1
        self._then_s, self._then_cpu_s = now_s, cpu_s
        if not self._ends:
            self._loop.call_soon(self.look)

    def end(self) -> None:
        self._ends = True


class Stacks(logging.Handler):
    """Keeps the stack of the longest turn that the watchdog has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.worst: tuple[int, str] = (0, "")

    def emit(self, record: logging.LogRecord) -> None:
        self.worst = max(self.worst, (getattr(record, "cpu_ms", 0), getattr(record, "stack", "")))


def serve() -> None:
    """Run a broker; `begin` and `end` on standard input enclose what is measured."""
    stacks = Stacks()
    logging.getLogger("barnabas.watchdog").addHandler(stacks)
    # As in `barnabas start`.
    gc.disable()
    with Broker(OPTIONS) as broker:
        gc.freeze()
        gc.enable()
        ShortCollections().start()
        assert broker._loop is not None
        print(broker.port, flush=True)
        for line in sys.stdin:
            if line.strip() == "begin":
                stacks.worst = (0, "")
                turns = broker._call(lambda: Turns(broker._loop))  # type: ignore[arg-type]
                watchdog = Watchdog(broker._loop, TURN_MS_MAX)
                broker._call(watchdog.start)
                broker._call(turns.look)
                print("begun", flush=True)
                continue
            broker._call(turns.end)
            watchdog.stop()
            facts = {name: getattr(turns, name) for name in ("longest_ms", "longest_cpu_ms", "over", "count")}
            print(json.dumps({**facts, "stack": stacks.worst[1]}), flush=True)


# --- in the client's process ---------------------------------------------------------------------------


@dataclass
class Stage:
    """See turns_rows. The broker's process, and a connection to it."""

    scale: float
    producer: tuple[int, int] = (0, 0)
    process: subprocess.Popen[str] = field(init=False)
    port: int = field(init=False)

    def of(self, count: int) -> int:
        return max(1, int(count * self.scale))

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.turns", "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.port = int(self.said())
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(600)

    def said(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise BenchError("the broker's process has ended")
        return line

    def tell(self, word: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.said()

    def connection(self) -> BrokerConnection:
        address = parse_bootstrap(f"127.0.0.1:{self.port}")
        return BrokerConnection(
            "127.0.0.1", self.port, ClientOptions(address, request_timeout_s=ANSWER_TIMEOUT_S)
        )

    def begin_transactions(self) -> None:
        """Have the coordinator ready, and a producer id."""
        with_id = InitProducerIdRequest(transactional_id=PRODUCER, transaction_timeout_ms=600_000)
        connection = self.connection()
        for key, kind in ((PRODUCER, 1), ("group", 0), ("share", 2)):
            connection.call(
                FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), FindCoordinatorResponse
            )
        while True:
            answer = connection.call(with_id, InitProducerIdResponse)
            if not answer.error_code:
                break
            time.sleep(0.1)
        self.producer = answer.producer_id, answer.producer_epoch
        connection.close()


class Ping:
    """A client that asks for the API versions every millisecond, in a process of its own."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, "-m", "bench.turns", "--ping", str(port)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def end(self) -> dict[str, float]:
        out, _ = self._process.communicate("end\n", timeout=600)
        report: dict[str, float] = json.loads(out)
        return report


def ping(port: int) -> None:
    """What the process of `Ping` does."""
    ends, waits = threading.Event(), []

    def await_end() -> None:
        sys.stdin.readline()
        ends.set()

    threading.Thread(target=await_end, daemon=True).start()
    with Wire(port, timeout_seconds=ANSWER_TIMEOUT_S) as wire:
        print("pinging", flush=True)
        while not ends.is_set() or not waits:
            begun_s = time.perf_counter()
            wire.api_versions()
            waits.append((time.perf_counter() - begun_s) * 1000)
            time.sleep(PING_S)
    waits.sort()
    print(json.dumps({"p99_ms": waits[len(waits) * 99 // 100], "max_ms": waits[-1], "pings": len(waits)}))


def measure(stage: Stage, row: Heavy) -> dict[str, Any]:
    """Send one heavy request, and say what it did to the loop and to the other client."""
    request = row.make(stage)
    connection = stage.connection()
    version = connection.version_for(type(request)) if row.version is None else row.version
    connection.versions[request.API_KEY] = (version, version)
    response: Any = response_class(request.API_KEY)
    stage.tell("begin")
    pinging = Ping(stage.port)
    begun_s = time.monotonic()
    correlation_id = connection._write(request, version)
    body = connection._read_body(correlation_id, response, version)
    took_s = time.monotonic() - begun_s
    if row.follows:
        time.sleep(AFTER_S)
    waits = pinging.end()
    report = json.loads(stage.tell("end"))
    connection.close()
    codes = Counter(codes_of(response.decode(body, version)))
    shown = {ErrorCode(code).name: count for code, count in sorted(codes.items()) if code}
    return {"name": row.name, "seconds": took_s, "bytes": len(body), "errors": shown, **waits, **report}


def codes_of(value: Any) -> list[int]:
    """All error codes of an answer."""
    if isinstance(value, list):
        return (
            [code for row in value for code in codes_of(row)]
            if value and isinstance(value[0], Struct)
            else []
        )
    if not isinstance(value, Struct):
        return []
    codes = []
    for name in value.__slots__:
        inner = getattr(value, name)
        if name.endswith("error_code"):
            codes.append(inner)
        else:
            codes += codes_of(inner)
    return codes


def wanted(pattern: str | None) -> list[Heavy]:
    """The rows whose names contain or match a text, and those that they need."""
    if pattern is None:
        return list(ROWS)
    by_name = {row.name: row for row in ROWS}
    chosen: set[str] = set()

    def choose(row: Heavy) -> None:
        chosen.add(row.name)
        for name in row.needs:
            choose(by_name[name])

    for row in ROWS:
        if pattern in row.name or fnmatch(row.name, pattern):
            choose(row)
    return [row for row in ROWS if row.name in chosen]


def table(rows: list[dict[str, Any]]) -> list[list[str]]:
    return [
        [
            "request",
            "turn, CPU ms",
            "turns over 20 ms",
            "turn ms",
            "ping p99 ms",
            "ping max ms",
            "seconds",
            "MB",
        ],
        *(
            [
                row["name"],
                f"{row['longest_cpu_ms']:.1f}",
                str(row["over"]),
                f"{row['longest_ms']:.1f}",
                f"{row['p99_ms']:.1f}",
                f"{row['max_ms']:.1f}",
                f"{row['seconds']:.2f}",
                f"{row['bytes'] / 1e6:.1f}",
            ]
            for row in rows
        ),
    ]


def page(rows: list[dict[str, Any]], scale: float) -> str:
    """results/turns.md."""
    about = machine()
    return (
        "# Turns of the loop during the heaviest requests\n\n"
        f"{about['cores']} cores ({about['cpu']}), load {os.getloadavg()[1]:.0f}; {scale:g} of the counts in the names. "
        "*turn, CPU ms*: the processor time of the loop's thread in the longest turn; goal: 20. *turn ms* and *ping* are by "
        "the clock, and mean something on a quiet machine only.\n\n" + markdown(table(rows)) + "\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of the counts in the rows' names (default 1)"
    )
    parser.add_argument("--only", metavar="TEXT", help="rows whose names contain it, and what they need")
    parser.add_argument(
        "--stacks", action="store_true", help="show where the longest turn of each row was spent"
    )
    parser.add_argument("--no-files", action="store_true", help="write nothing to bench/results")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--ping", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return 0
    if options.ping:
        ping(options.ping)
        return 0
    rows_measured: list[dict[str, Any]] = []
    with Stage(options.scale) as stage:
        stage.begin_transactions()
        for row in wanted(options.only):
            measured = measure(stage, row)
            rows_measured.append(measured)
            errors = f" {measured['errors']}" if measured["errors"] else ""
            print(
                f"{row.name}: {measured['longest_cpu_ms']:.1f} ms, {measured['over']} over{errors}",
                flush=True,
            )
            if options.stacks and measured["longest_cpu_ms"] > TURN_MS_MAX:
                print(f"    {measured['stack']}", flush=True)
    rows = table(rows_measured)
    print("\n" + aligned(rows))
    if not options.no_files and options.only is None:
        (RESULTS / "turns.md").write_text(page(rows_measured, options.scale))
        (RESULTS / "turns.json").write_text(
            json.dumps({"scale": options.scale, "rows": rows_measured}, indent=1) + "\n"
        )
    return int(any(row["over"] for row in rows_measured))


if __name__ == "__main__":
    sys.exit(main())
