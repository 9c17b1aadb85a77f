"""The sink, standing still at a place of its protocol: for tests that kill a process there.

The format `stalling` is the format `barnabas` with two options more: stallAt, a place of PLACES, and stallIn, a folder. The
first process that comes to the place writes its id to the file `reached`, and goes on once there is a file `go`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from barnabas.client.transactions import Transactions
from barnabas.pipelines.spark.topics.sink import StreamWriter, check_schema
from barnabas.pipelines.spark.topics.source import BarnabasSource

PLACES = (
    "before the write",
    "between writes",
    "all prepared",
    "decided",
    "some committed",
    "all committed",
)
IN_TASKS = PLACES[:2]


class Stall:
    """A place to stand still at, once."""

    def __init__(self, place: str, folder: str) -> None:
        self.place = place
        self.folder = folder

    def here(self, place: str) -> None:
        if place != self.place:
            return
        folder = Path(self.folder)
        try:
            (folder / "taken").touch(exist_ok=False)
        except FileExistsError:
            return
        (folder / "reached.new").write_text(str(os.getpid()))
        (folder / "reached.new").rename(folder / "reached")
        while not (folder / "go").exists():
            time.sleep(0.02)


class StallingSource(BarnabasSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        return "stalling"

    def __init__(self, options: dict[str, str]) -> None:
        own = {name: value for name, value in options.items() if not name.lower().startswith("stall")}
        super().__init__(own)
        lowered = {name.lower(): value for name, value in options.items()}
        self.stall = Stall(lowered.get("stallat", ""), lowered.get("stallin", ""))

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        writer = StallingWriter(check_schema(self.options, schema), is_planned=not self._is_shipped)
        writer.stall = self.stall
        return writer


class StallingWriter(StreamWriter):
    """See the module."""

    stall: Stall

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        self.stall.here("before the write")

        def pieces() -> Iterator[pa.RecordBatch]:
            for number, piece in enumerate(iterator):
                if number == 1:
                    self.stall.here("between writes")
                yield piece

        return super().write(pieces())

    def commit(self, messages: list[Any], batchId: int) -> None:
        self.stall.here("all prepared")
        end_all = Transactions.end_all
        stall = self.stall

        def in_two_steps(transactions: Transactions, producers: Any, *, commit: bool) -> Any:
            stall.here("decided")
            lost = end_all(transactions, producers[:1], commit=commit)
            stall.here("some committed")
            return lost + end_all(transactions, producers[1:], commit=commit)

        Transactions.end_all = in_two_steps  # type: ignore[method-assign]
        try:
            super().commit(messages, batchId)
        finally:
            Transactions.end_all = end_all  # type: ignore[method-assign]
        self.stall.here("all committed")
