"""Notices when the brokers that a client reads from or writes to go away and come back, from librdkafka's own statistics."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.terminal.output import note
from barnabas.terminal.progress import time_left_text

STATISTICS: Final = {"statistics.interval.ms": 1000}
TEXT_MAX: Final = 4_000_000
"""Longer statistics, of thousands of partitions, are ignored: parsing them would cost too much."""
UP: Final = "UP"


Key = tuple[str, int]
Waiting = Callable[[dict[str, Any]], bool]
"""Whether a partition, as the statistics describe it, waits for its broker."""


def is_read(part: dict[str, Any]) -> bool:
    """Whether a consumer reads the partition."""
    return bool(part["fetch_state"] != "none")


def has_records(part: dict[str, Any]) -> bool:
    """Whether a producer has records for the partition that are not acknowledged."""
    return bool(part["msgq_cnt"] or part["xmit_msgq_cnt"] or part["msgs_inflight"])


@dataclass(slots=True)
class Absence:
    """`on_statistics` is librdkafka's `stats_cb`. Prints one line when a broker that is waited for goes away, and one
    when it is back.

    A partition counts once it has been served, since nothing is away at the start. A broker must be missing from two
    statistics in a row, so that a connection that is only reopened is not reported.
    """

    say: Callable[[str], None] = note
    clock: Callable[[], float] = time.monotonic
    is_waiting: Waiting = is_read
    _served_by: dict[Key, str] = field(default_factory=dict)
    """The address of the broker that served each partition last."""
    _missed: dict[str, float] = field(default_factory=dict)
    _reported_at: dict[str, float] = field(default_factory=dict)

    def on_statistics(self, text: str) -> None:
        """Compare with the previous statistics."""
        if len(text) > TEXT_MAX:
            return
        statistics = json.loads(text)
        up = addresses_up(statistics)
        lost: set[str] = set()
        for key, part in partitions_of(statistics):
            address = up.get(part["leader"])
            if address is not None:
                self._served_by[key] = address
            elif key in self._served_by and (
                self.is_waiting(part) or self._served_by[key] in self._reported_at
            ):
                lost.add(self._served_by[key])
        now = self.clock()
        for address in sorted(lost - self._reported_at.keys()):
            if address in self._missed:
                self._reported_at[address] = self._missed[address]
                self.say(f"broker {address} is away; waiting for it")
            else:
                self._missed[address] = now
        for address in [address for address in self._reported_at if address not in lost]:
            away = time_left_text(now - self._reported_at.pop(address))
            if address in up.values():
                self.say(f"broker {address} is back after {away}")
            else:
                self.say(f"another broker has taken over from {address} after {away}")
        self._missed = {address: since for address, since in self._missed.items() if address in lost}


def addresses_up(statistics: dict[str, Any]) -> dict[int, str]:
    """The connected brokers, by number. Statistics call a broker `HOST:PORT/NUMBER`."""
    addresses = {}
    for name, row in statistics["brokers"].items():
        number = name.rpartition("/")[2]
        if row["state"] == UP and number.isdecimal():
            addresses[int(number)] = str(row["nodename"])
    return addresses


def partitions_of(statistics: dict[str, Any]) -> Iterator[tuple[Key, dict[str, Any]]]:
    """The partitions of the topics in use."""
    for name, topic in statistics["topics"].items():
        for part in topic["partitions"].values():
            if part["partition"] >= 0:
                yield (name, part["partition"]), part
