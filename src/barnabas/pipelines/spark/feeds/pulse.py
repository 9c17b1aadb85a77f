"""What all running queries of a session do, found out with one call to Java."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.pipelines.spark.feeds.feed import CLASSES
from barnabas.pipelines.spark.private import java_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


@dataclass(frozen=True, slots=True)
class Pulse:
    """What one active query does. latest: the time of its last progress report, empty before the first. message: in
    words."""

    is_triggered: bool
    has_data: bool
    latest: str
    message: str


def pulses_of(spark: SparkSession) -> Callable[[], dict[str, Pulse]]:
    """A function that returns the pulses of the session's active queries, by the id of the run."""
    of_java = CLASSES.new(spark, "Pulse", java_session(spark))

    def taken() -> dict[str, Pulse]:
        pulses = {}
        for line in str(of_java.taken()).splitlines():
            run, triggered, data, latest, message = line.split("\t", 4)
            pulses[run] = Pulse(triggered == "1", data == "1", latest, message)
        return pulses

    return taken


def asked_pulse(stream: StreamingQuery) -> Pulse:
    """The pulse of one query."""
    status = stream.status
    return Pulse(bool(status["isTriggerActive"]), bool(status["isDataAvailable"]), "", str(status["message"]))
