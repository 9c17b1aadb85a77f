"""A process beside a service that carries out large tasks with schemas, within limits of CPU time and memory.

The registry has one, and the REST proxy one of its own (`proxy/encoding.py`). Such work cannot run in threads: they would
hold the interpreter's lock, and with it a broker in the same process. The system ends a worker that uses up the CPU time of
one task, and the next task gets a new one. Requests and answers are pickles with their length before them; the worker ends
when its input does.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, Final, NamedTuple, Protocol

from barnabas.registry.errors import RegistryError
from barnabas.registry.tasks import TOO_LONG, Desk, Outcome

log = logging.getLogger("barnabas.registry")

_LENGTH: Final = struct.Struct(">Q")
BUSY: Final = "the service is busy with other large schemas; try again in a few seconds"
STOPPING: Final = "this instance of the service is being stopped; send the request again"
MODULE: Final = "barnabas.registry.worker"
OUT_OF_MEMORY: Final = "out of memory"


class Limits(NamedTuple):
    """For one task. wall_s: ends a worker that waits for something, which none should. waiting: tasks in the queue."""

    cpu_s: float = 5.0
    wall_s: float = 120.0
    memory_bytes: int = 2 << 30
    waiting: int = 100


class Report(NamedTuple):
    """outcome: None after a bug, which `bug` describes."""

    outcome: Outcome | None
    cpu_s: float
    bug: str = ""


class Worker:
    """The process, started when it is first needed. Carries out one task after the other. module: its `main` is run."""

    def __init__(self, limits: Limits | None = None, module: str = MODULE) -> None:
        self._command = [sys.executable, "-P", "-c", f"from {module} import main; main()"]
        self.limits = limits or Limits()
        self.replaced = 0
        """How many workers have been ended because of a limit."""
        self._waiting = 0
        self._closing = False
        self._thread = ThreadPoolExecutor(1, "registry worker")
        self.process: subprocess.Popen[bytes] | None = None

    async def carry_out(self, task: Any) -> Report:
        """The outcome of a task, TOO_LONG if it needs more than its limits. Raises RegistryError 503 if too many wait."""
        if self._waiting >= self.limits.waiting:
            raise RegistryError(503, BUSY)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._ask, task)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """End the process. A task that is under way is not completed."""
        self._closing = True
        process = self.process
        if process is not None:
            process.kill()
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._end()

    # --- the thread -----------------------------------------------------------------------------------

    def _ask(self, task: Any) -> Report:
        for is_last in (False, True):
            report = self._once(task, is_last)
            if report is not None:
                return report
        raise AssertionError("the second attempt always reports")

    def _once(self, task: Any, is_last: bool) -> Report | None:
        """The report; None if the worker was ended by something other than its limits, and a new one may try again."""
        process = self.process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        watch = threading.Timer(self.limits.wall_s, process.kill)
        watch.daemon = True
        watch.start()
        try:
            send(process.stdin, task)
            report: Report = receive(process.stdout)
        except (OSError, EOFError):
            code = self._end()
            if self._closing:
                raise RegistryError(503, STOPPING) from None
            is_over = code == -signal.SIGPROF or not watch.is_alive()
            log.warning("worker ended", extra={"exit_code": code, "is_over_budget": is_over})
            self.replaced += 1
            return Report(TOO_LONG, self.limits.cpu_s) if is_over or is_last else None
        finally:
            watch.cancel()
        if report.bug == OUT_OF_MEMORY:
            self._end()
            self.replaced += 1
            return Report(TOO_LONG, self.limits.cpu_s)
        return report

    def _start(self) -> subprocess.Popen[bytes]:
        limits = (str(self.limits.cpu_s), str(self.limits.memory_bytes))
        self.process = subprocess.Popen(
            [*self._command, *limits],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        return self.process

    def _end(self) -> int | None:
        process, self.process = self.process, None
        if process is None:
            return None
        process.kill()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except OSError:  # bytes that it has not read
                pass
        return process.wait()


def send(pipe: IO[bytes], value: Any) -> None:
    """Write a value with its length. Raises OSError."""
    raw = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    pipe.write(_LENGTH.pack(len(raw)))
    pipe.write(raw)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """Read a value that was sent. Raises EOFError if the other side has ended."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    raw = pipe.read(length)
    if len(raw) < length:
        raise EOFError
    return pickle.loads(raw)


# --- the process itself -------------------------------------------------------------------------------


class Carrier(Protocol):
    """Knows how to carry out the tasks of one service."""

    def carry_out(self, task: Any) -> Outcome:
        """The answer to a task. Any exception that comes out of here is a bug, or MemoryError."""
        ...


def serve(source: IO[bytes], target: IO[bytes], cpu_s: float, desk: Carrier) -> None:
    """Carry out tasks until the input ends."""
    while True:
        try:
            task = receive(source)
        except EOFError:
            return
        # Not handled in Python: the system ends the process, whatever it is doing.
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        begun_s = time.process_time()
        outcome, bug = None, ""
        try:
            outcome = desk.carry_out(task)
        except MemoryError:
            bug = OUT_OF_MEMORY
        except Exception as error:
            bug = f"{type(error).__name__}: {error}"
        signal.setitimer(signal.ITIMER_PROF, 0)
        try:
            send(target, Report(outcome, time.process_time() - begun_s, bug))
        except BrokenPipeError:
            return


def main() -> None:
    """What the registry's process runs."""
    run(Desk, _load)


def run(make: Callable[[], Carrier], load: Callable[[], None]) -> None:
    """What the process of a service runs. Its arguments are the seconds of CPU time and the bytes of memory.

    load: imports what tasks use, so that it is not charged to the first one.
    """
    import resource

    cpu_s, memory = float(sys.argv[1]), int(sys.argv[2])
    source, target = os.fdopen(0, "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing but reports goes to the pipe
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the registry ends it, after its last request
    try:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    except (OSError, ValueError):  # systems that cannot limit it
        pass
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    load()
    sys.setrecursionlimit(20_000)
    threading.stack_size(256 << 20)
    thread = threading.Thread(target=serve, args=(source, target, cpu_s, make()))
    thread.start()
    thread.join()


def _load() -> None:
    for name in ("avro", "json_schema", "protobuf"):
        importlib.import_module(f"barnabas.schemas.formats.{name}")
    for name in ("avro", "json", "protobuf"):
        importlib.import_module(f"barnabas.schemas.formats.{name}_compatibility")
    importlib.import_module("jsonschema_rs")
