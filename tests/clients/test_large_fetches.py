"""Several readers of large answers at once: the loop and sender threads carry them, and every byte is the log's own."""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Callable

import pytest

from barnabas.wire.header import encode_request
from barnabas.wire.messages.fetch import FetchResponse
from tests.clients.test_bad_input import Raw
from tests.clients.test_hostile_peers import fetch, fill
from tests.support.admin import create_topic
from tests.support.process import BrokerProcess

READERS = 8
ROUNDS = 12
BATCHES = 16
VALUE_BYTES = 500_000
VERSION = 12
ANSWER_BYTES_MAX = 6 << 20


@pytest.fixture
def filled(own_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    broker = own_broker()
    create_topic(broker.bootstrap, "large", 1)
    fill(broker, "large", BATCHES, VALUE_BYTES)
    return broker


def read_from(raw: Raw, offset: int) -> bytes:
    answer = raw.ask(fetch("large", offset, ANSWER_BYTES_MAX), FetchResponse, VERSION)
    assert isinstance(answer, FetchResponse)
    partition = answer.responses[0].partitions[0]
    assert partition.error_code == 0
    return bytes(partition.records or b"")


def forget(broker: BrokerProcess) -> None:
    """Take the log out of the page cache, so that sender threads have to wait for the disk."""
    for segment in broker.data_dir.glob("large-0/*.log"):
        with segment.open("rb") as file:
            os.fdatasync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.mark.parametrize("cold", [False, True], ids=["in-memory", "on-disk"])
def test_readers_side_by_side_get_the_very_bytes(filled: BrokerProcess, cold: bool) -> None:
    alone = Raw(filled)
    wanted = [read_from(alone, offset) for offset in range(BATCHES)]
    wrong: list[str] = []

    def reads(seed: int) -> None:
        chosen = random.Random(seed)
        raw = Raw(filled)
        for _ in range(ROUNDS):
            offset = chosen.randrange(BATCHES)
            if cold:
                forget(filled)
            if read_from(raw, offset) != wanted[offset]:
                wrong.append(f"reader {seed} at offset {offset}")
        raw.sock.close()

    threads = [threading.Thread(target=reads, args=(seed,)) for seed in range(READERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_readers_that_go_in_the_middle_harm_nobody(filled: BrokerProcess) -> None:
    alone = Raw(filled)
    wanted = read_from(alone, 0)
    for round_ in range(30):
        going = [Raw(filled) for _ in range(4)]
        for raw in going:
            raw.sock.sendall(encode_request(fetch("large", 0, ANSWER_BYTES_MAX), VERSION, 1, "going"))
        for raw in going[round_ % 4 :]:
            with contextlib.suppress(OSError):
                raw.sock.recv(1000)
        for raw in going:
            raw.sock.close()
        if round_ % 5 == 0:
            assert read_from(alone, 0) == wanted
    assert read_from(alone, 0) == wanted


def test_requests_pipelined_behind_a_large_answer_are_answered_in_order(filled: BrokerProcess) -> None:
    wanted = read_from(Raw(filled), 0)
    peers = [Raw(filled) for _ in range(4)]
    for raw in peers:
        frames = (
            encode_request(fetch("large", i % 2, ANSWER_BYTES_MAX), VERSION, i, "peer") for i in range(6)
        )
        raw.sock.sendall(b"".join(frames))
    sizes = []
    for raw in peers:
        for i in range(6):
            frame = raw.frame()
            assert int.from_bytes(frame[:4], "big") == i
            sizes.append(len(frame))
            if i % 2 == 0:
                assert wanted in frame
    assert min(sizes) > 5 << 20
