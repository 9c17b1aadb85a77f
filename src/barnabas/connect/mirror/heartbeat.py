"""MirrorHeartbeatConnector: writes a heartbeat of the flow to the target, every second. Copied on from there, they show that
a chain of flows is alive, and how late it is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

from barnabas.connect.connectors import Batch, SourceConnector, SourceContext
from barnabas.connect.mirror.flow import TARGET, Flow, require_topic
from barnabas.connect.mirror.formats import Heartbeat
from barnabas.connect.mirror.naming import HEARTBEATS
from barnabas.connect.mirror.options import HEARTBEAT, PACKAGE
from barnabas.connect.options import Config
from barnabas.connect.records import Json, SourceRecord
from barnabas.connect.schemas import OPTIONAL_BYTES

WAIT_S = 1.0


class MirrorHeartbeat(SourceConnector):
    """One record per interval."""

    doc = "Heartbeats of a flow between two clusters, in the target."
    aliases = (f"{PACKAGE}.MirrorHeartbeatConnector",)
    options = HEARTBEAT
    poll_interval_ms: ClassVar[int] = 20

    def start(self, config: Config, context: SourceContext) -> None:
        """See SourceConnector."""
        super().start(config, context)
        self._flow = Flow(config)
        self._next_s = 0.0

    def partitions(self) -> Sequence[Json]:
        """One: the flow; none if heartbeats are switched off."""
        config, flow = self.config, self._flow
        if not config["emit.heartbeats.enabled"] or config["emit.heartbeats.interval.seconds"] <= 0:
            return []
        with flow.admin(TARGET) as admin:
            require_topic(admin, flow.target, HEARTBEATS, config["heartbeats.topic.replication.factor"])
        return [{"sourceClusterAlias": flow.source, "targetClusterAlias": flow.target}]

    def poll(self, partition: Json, offset: Json | None) -> Sequence[SourceRecord] | Batch:
        """See SourceConnector."""
        wait_s = self._next_s - time.monotonic()
        if wait_s > 0:
            self.context.stopping.wait(min(wait_s, WAIT_S))
            if self._next_s > time.monotonic():
                return []
        self._next_s = time.monotonic() + float(self.config["emit.heartbeats.interval.seconds"])
        now_ms = time.time_ns() // 1_000_000
        beat = Heartbeat(self._flow.source, self._flow.target, now_ms)
        return [
            SourceRecord(
                HEARTBEATS,
                beat.value(),
                beat.key(),
                OPTIONAL_BYTES,
                OPTIONAL_BYTES,
                timestamp_ms=now_ms,
                partition=0,
                source_offset={"offset": 0},
            )
        ]
