"""What `barnabas start` runs: one broker in this process, until a signal ends it."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, Protocol

from barnabas.observe import logs
from barnabas.open_files import allow_all_files
from barnabas.runtime import stacks
from barnabas.runtime.garbage import ShortCollections
from barnabas.runtime.turns import Turns
from barnabas.runtime.watchdog import SLOW_TURN_MS, Watchdog
from barnabas.runtime.workers import Workers, call_when_input_ends

if TYPE_CHECKING:
    from barnabas.broker.server import BrokerServer
    from barnabas.config.loader import BrokerConfig
    from barnabas.http_client import Address
    from barnabas.observe.metric import Measure, Sample

log = logging.getLogger("barnabas.main")

QUORUM: Final = ("controller.quorum.voters", "controller.quorum.bootstrap.servers")
SLOW_TURN_VARIABLE: Final = "BARNABAS_SLOW_TURN_MS"
"""Environment variable: turns of the loop that take at least this many milliseconds are logged."""


class Companion(Protocol):
    """Services that run beside a broker in its process. `start` and `stop` block and run in a thread."""

    def start(self) -> None:
        """Return once the services answer. Raises an exception with a one-sentence message when they cannot start."""

    def stop(self) -> bool:
        """Return once the services have ended. False: one of them hangs, and its threads may never end."""

    def registry(self) -> Address | None:
        """The address of the schema registry, if the services include one and have started."""


MakeCompanion = Callable[[Callable[[str], str], "Measure"], Companion]
"""Makes a companion from two functions: security protocol -> the broker's address, which may raise StartError; and
what reads the broker's metrics.
"""


def run(
    config: BrokerConfig,
    log_settings: logs.LogSettings = logs.STANDARD_ERROR,
    *,
    workers: Sequence[Sequence[str]] = (),
    is_worker: bool = False,
    companion: MakeCompanion | None = None,
) -> int:
    """Run a broker until SIGTERM or SIGINT; 0 after a clean stop, 1 when it could not start or continue.

    workers: command lines of the other processes of `barnabas start --workers`. is_worker: this is such a process.
    companion: services to run beside the broker.
    """
    logs.set_up(log_settings)
    allow_all_files()
    for name, level in config.logger_levels.items():
        # Set before anything is read; the metadata may change levels later.
        logging.getLogger("" if name == "root" else name).setLevel(level)
    for warning in config.warnings:
        log.warning(warning)
    runner = asyncio.Runner(loop_factory=loop_factory())
    with runner:
        return runner.run(_serve(config, Workers(workers), is_worker, companion))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the broker's event loop: uvloop's, or None for asyncio's own where uvloop is not installed."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _slow_turn_ms() -> float:
    text = os.environ.get(SLOW_TURN_VARIABLE, "")
    try:
        return max(float(text or SLOW_TURN_MS), 1)
    except ValueError:
        log.warning(
            "an environment variable is ignored", extra={SLOW_TURN_VARIABLE: text, "allowed": "milliseconds"}
        )
        return SLOW_TURN_MS


def _say_ready(line: str) -> None:
    """Print the line that begins with `ready`. A broker whose standard output is closed or full serves all the same."""
    try:
        print(line, flush=True)
    except OSError as error:
        log.warning("cannot write to standard output", extra={"reason": error.strerror, "line": line})


def _say_alone(config: BrokerConfig) -> None:
    """Log that this broker is a cluster of its own, if its options look as if it should be one of several."""
    name = next((name for name in ("node.id", "broker.id") if name in config.static), None)
    has_quorum = any("," in config.static.get(option, "") for option in QUORUM)
    is_another = config.node_id > 1 or (name == "broker.id" and config.node_id == 1)
    if config.texts("zookeeper.connect") is None and (has_quorum or (name is not None and is_another)):
        log.info(
            "this broker is alone, a cluster of its own: brokers form a cluster when the zookeeper.connect of each names "
            "the same ZooKeeper",
            extra={name or "node.id": config.node_id},
        )


class _Measuring:
    """See Measure."""

    def __init__(self, broker: BrokerServer, loop: asyncio.AbstractEventLoop, turns: Turns) -> None:
        self._broker, self._loop, self._turns = broker, loop, turns
        self.node_id, self.started_s = broker.services.config.node_id, time.monotonic()

    def __call__(self) -> Future[list[Sample]]:
        from barnabas.broker.api.measuring import measure

        return asyncio.run_coroutine_threadsafe(measure(self._broker.services, self._turns), self._loop)

    def slow(self) -> list[dict[str, Any]]:
        return [request._asdict() for request in list(self._broker.services.times.slow)]


async def _serve(
    config: BrokerConfig, workers: Workers, is_worker: bool, companion: MakeCompanion | None
) -> int:
    from barnabas.broker.server import BrokerServer, StartError

    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def end(code: int) -> None:
        if not ended.done():
            ended.set_result(code)

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, 0)
    if is_worker:
        call_when_input_ends(lambda: end(0))
    dumps = stacks.StackDumps(loop, config.log_dirs[0] / stacks.FILE)
    broker = BrokerServer(config, on_fatal=lambda: end(1), ended=ended)
    # The objects allocated at start-up, millions when there are many partitions, live as long as the process: the garbage
    # collector need not examine them again and again while they are created, nor ever afterwards.
    gc.disable()
    stacks.answer_on_standard_error()
    try:
        await broker.start()
    except StartError as error:
        if ended.done():
            log.info("stopped before it served anybody")
            return ended.result()
        print(f"barnabas: {error}", file=sys.stderr)
        return 1
    gc.freeze()
    gc.enable()
    collections = ShortCollections()
    collections.start()
    watchdog = Watchdog(loop, _slow_turn_ms())
    watchdog.start()
    dumps.start()
    turns = Turns(loop)
    turns.start()
    beside = None

    measured = _Measuring(broker, loop, turns)
    try:
        await workers.start()
        if companion is not None:
            services = await asyncio.to_thread(companion, broker.address_for_services, measured)
            await asyncio.to_thread(services.start)
            beside = services
            registry = services.registry()
            if registry is not None:
                broker.services.schema_checks.use(registry)
    except Exception as error:
        print(f"barnabas: {error}", file=sys.stderr)
        end(1)
    else:
        if not is_worker and workers.count == 0:
            _say_alone(config)
        _say_ready(broker.ready_line())
    code = await ended
    has_ended = beside is None or await asyncio.to_thread(beside.stop)
    await workers.stop()
    await broker.stop()
    watchdog.stop()
    turns.stop()
    dumps.stop()
    collections.stop()
    if not has_ended:
        logging.shutdown()
        os._exit(code)  # Python would wait for the threads of the service that hangs
    return code
