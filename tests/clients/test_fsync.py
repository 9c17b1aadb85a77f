"""No fsync on the loop: it would hold up every client for as long as the disk takes."""

from __future__ import annotations

import os
import threading
import traceback
from typing import Any

import pytest

from barnabas.testing import Broker
from tests.clients.drivers import Confluent, Message
from tests.support.admin import admin as admin_of
from tests.support.admin import create_topic

OPTIONS = {
    "log.cleaner.backoff.ms": "50",
    "log.retention.check.interval.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "log.segment.delete.delay.ms": "0",
}


def test_the_disk_is_waited_for_in_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under rolls, compaction, flushes, retention, new and deleted topics."""
    on_loop: list[str] = []
    elsewhere: list[str] = []
    real = {name: getattr(os, name) for name in ("fsync", "fdatasync")}

    def noting(name: str) -> Any:
        def sync(fd: int) -> None:
            thread = threading.current_thread().name
            if thread == "barnabas-broker":
                on_loop.append("".join(traceback.format_stack(limit=8)))
            elsewhere.append(thread)
            real[name](fd)

        return sync

    with Broker(options=OPTIONS) as broker:
        for name in real:
            monkeypatch.setattr(os, name, noting(name))
        client = Confluent()
        small = {"segment.bytes": "20000"}
        create_topic(
            broker.bootstrap,
            "kept",
            config=small | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
        )
        create_topic(broker.bootstrap, "old", config=small | {"retention.bytes": "40000"})
        create_topic(broker.bootstrap, "safe", config=small | {"flush.messages": "1"})
        for turn in range(3):
            for topic in ("kept", "old", "safe"):
                rows = [Message(0, b"k%d" % (i % 5), b"v" * 100) for i in range(150)]
                assert client.produce(broker.bootstrap, topic, rows, codec="none", acks=-1) == len(rows)
            create_topic(broker.bootstrap, f"short-{turn}")
        admin = admin_of(broker.bootstrap)
        for future in admin.delete_topics(["old", "short-0"]).values():
            future.result(20)
        assert elsewhere, "nothing was ever synced"
        assert not on_loop, on_loop[0]
