"""The lag of pipelines: how many records wait for each query. All pipelines on one cluster are asked for together."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import replace

from barnabas.client.blocking import LATEST, BlockingClient
from barnabas.client.errors import BrokerUnavailable
from barnabas.client.options import ClientOptions
from barnabas.pipelines.compiler.queries import connection_options
from barnabas.pipelines.plan.pipeline import PipelineSpec
from barnabas.pipelines.serving.managed import Managed, Running
from barnabas.pipelines.serving.rates import Gauge
from barnabas.pipelines.spark.topics.options import client_options

log = logging.getLogger(__name__)


class Lags:
    """Keeps the lags of pipelines."""

    def __init__(
        self,
        address: Callable[[PipelineSpec], str],
        submit: Callable[..., Future[None]],
        note: Callable[[Managed, Running, int | None], None],
        client: Callable[[ClientOptions], AbstractContextManager[BlockingClient]],
        every_s: float,
    ) -> None:
        """address: the brokers of a pipeline. submit: runs a function in a worker thread. note: called for each running
        query with its lag, None if it is not known. client: lends a client. every_s: how often a pipeline's lag is
        requested from its broker, and the timeout of that request."""
        self._address = address
        self._submit = submit
        self._note = note
        self._client = client
        self._every_s = every_s

    def keep(self, pipelines: list[Managed]) -> None:
        """Requests the lags of pipelines every so often, in worker threads: one for each cluster."""
        now = time.monotonic()
        due: dict[ClientOptions, list[Managed]] = {}
        for managed in pipelines:
            idle = managed.asking is None or managed.asking.done()
            asks = bool(managed.running) or managed.waiting_since is not None
            if asks and idle and now - managed.asked_at >= self._every_s:
                settings = connection_options(managed.spec, self._address(managed.spec))
                due.setdefault(_impatient(client_options(settings), self._every_s), []).append(managed)
                managed.asked_at = now
        for options, together in due.items():
            asking = self._submit(self._ask_lags, options, together)
            for managed in together:
                managed.asking = asking

    def _ask_lags(self, options: ClientOptions, together: list[Managed]) -> None:
        """The lags of pipelines on one cluster, with one request; if that fails, with one for each pipeline."""
        topics = {topic for managed in together for source in managed.spec.sources for topic in source.topics}
        try:
            with self._client(options) as client:
                reached = [self._reached(client, managed) for managed in together]
                pairs = {pair for queries in reached for positions in queries.values() for pair in positions}
                ends = client.list_offsets(dict.fromkeys(pairs, LATEST))
                client.describe(topics)
        except Exception as error:
            for managed in together:
                if len(together) > 1:
                    managed.asking = self._submit(self._ask_lags, options, [managed])
                else:
                    self._no_lag(managed, error)
            return
        for managed, queries in zip(together, reached, strict=True):
            self._note_lag(managed, queries, {pair: end.offset for pair, end in ends.items()})

    def _reached(self, client: BlockingClient, managed: Managed) -> dict[str, Mapping[tuple[str, int], int]]:
        """The offsets that each query of a pipeline has reached, empty if it has processed nothing yet."""
        return {
            report.name: report.positions or self._committed(client, managed, report.name)
            for _, report in list(managed.running)
        }

    def _note_lag(
        self,
        managed: Managed,
        reached: Mapping[str, Mapping[tuple[str, int], int]],
        ends: Mapping[tuple[str, int], int],
    ) -> None:
        for running in list(managed.running):
            report = running[1]
            positions = reached.get(report.name)
            if not positions:
                managed.lags.pop(report.name, None)
                self._note(managed, running, None)
                continue
            own = {pair: ends[pair] for pair in positions if pair in ends}
            lag = sum(max(end - positions[pair], 0) for pair, end in own.items())
            managed.lags[report.name], managed.ends[report.name] = lag, _by_topic(own)
            gauge = managed.gauges.setdefault(report.name, Gauge())
            gauge.note(time.monotonic(), report.rows, lag)
            self._note(managed, running, lag)
        if managed.waiting_since is not None:
            managed.waiting_since = None
            # The broker was the reason of the failure, so the pipeline can start at once.
            managed.retry_at, managed.restarts = 0.0, 0

    def _no_lag(self, managed: Managed, error: Exception) -> None:
        """Only numbers are missing: if something is wrong, the query itself fails."""
        if not isinstance(error, BrokerUnavailable):
            managed.lags.clear()
            log.debug("lag is unknown", extra={"pipeline": managed.spec.name, "reason": str(error)})
            return
        if managed.running or managed.waiting_since is not None:
            managed.waiting_since = managed.waiting_since or time.time()
        for numbers in (managed.lags, managed.ends, managed.stands, managed.stuck):
            numbers.clear()

    def _committed(
        self, client: BlockingClient, managed: Managed, name: str
    ) -> Mapping[tuple[str, int], int]:
        """The offsets of a query's consumer group, for a query without a progress report since its start."""
        query = next((query for query in managed.queries if query.name == name), None)
        return {} if query is None else client.committed(managed.spec.group(query))


def _impatient(options: ClientOptions, seconds: float) -> ClientOptions:
    """The client's options with short timeouts, for requests that are repeated soon."""
    return replace(
        options,
        deadline_s=seconds,
        contact_timeout_s=seconds,
        connect_timeout_s=seconds,
        request_timeout_s=seconds,
    )


def _by_topic(offsets: Mapping[tuple[str, int], int]) -> dict[str, dict[str, int]]:
    """Offsets of partitions, by topic and by the partition's number as text."""
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in offsets.items():
        by_topic.setdefault(topic, {})[str(partition)] = offset
    return by_topic
