"""Large requests share a bounded memory: they wait for their turn, and none waits for ever."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from barnabas.broker.net.room import LOOK_S, PROGRESS_BYTES, RequestRoom

MB = 1 << 20


class Loop:
    """The two things that a RequestRoom takes from its loop."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self._timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> object:
        self._timers.append((self.now_s + delay_s, callback))
        return object()

    def go_on(self, seconds: float) -> None:
        self.now_s += seconds
        due = [callback for at_s, callback in self._timers if at_s <= self.now_s]
        self._timers = [timer for timer in self._timers if timer[0] > self.now_s]
        for callback in due:
            callback()


class Peer:
    """A connection that reads a frame, as far as a RequestRoom knows it."""

    def __init__(self, room: RequestRoom, size_bytes: int) -> None:
        self.room, self.size_bytes = room, size_bytes
        self.received_bytes: int | None = None
        self.closed: str | None = None
        self.has_room = room.take(self, size_bytes)
        if self.has_room:
            self.received_bytes = 0

    def on_room(self) -> None:
        self.has_room = True
        self.received_bytes = 0

    def receive(self, count: int) -> None:
        assert self.received_bytes is not None
        self.received_bytes += count

    def finish(self) -> None:
        self.room.has_arrived(self)
        self.received_bytes = None
        self.room.give_back(self, self.size_bytes)

    def close(self, reason: str | None) -> None:
        self.closed = reason
        self.received_bytes = None
        if self.has_room:
            self.room.give_back(self, self.size_bytes)
        else:
            self.room.forget(self)


@pytest.fixture
def loop() -> Loop:
    return Loop()


def new_room(loop: Loop, bytes_max: int) -> RequestRoom:
    return RequestRoom(loop, bytes_max)  # type: ignore[arg-type]


def test_they_get_room_in_the_order_in_which_they_asked(loop: Loop) -> None:
    room = new_room(loop, 100 * MB)
    first, second = Peer(room, 60 * MB), Peer(room, 60 * MB)
    third, fourth = Peer(room, 10 * MB), Peer(room, 10 * MB)
    assert [peer.has_room for peer in (first, second, third, fourth)] == [True, False, False, False]
    third.close(None)
    first.finish()
    assert second.has_room
    assert fourth.has_room
    assert room.taken_bytes == 70 * MB
    second.finish()
    fourth.finish()
    assert (room.taken_bytes, room.waiting) == (0, 0)


def test_no_limit_and_a_frame_that_is_larger_than_the_room(loop: Loop) -> None:
    unlimited = new_room(loop, 0)
    assert all(Peer(unlimited, 100 * MB).has_room for _ in range(20))
    small = new_room(loop, MB)
    large = Peer(small, 3 * MB)
    other = Peer(small, 100)
    assert (large.has_room, other.has_room) == (True, False)
    large.finish()
    assert other.has_room


def test_a_peer_that_takes_room_and_sends_nothing_loses_it_when_others_wait(loop: Loop) -> None:
    """Three connections that announce 100 MB each would otherwise stop all large requests."""
    room = new_room(loop, 300 * MB)
    idle = [Peer(room, 100 * MB) for _ in range(2)]
    slow = Peer(room, 100 * MB)
    loop.go_on(10 * LOOK_S)
    assert not any(peer.closed for peer in (*idle, slow))  # nobody waits
    waiting = Peer(room, MB)
    loop.go_on(LOOK_S / 2)
    slow.receive(PROGRESS_BYTES)
    loop.go_on(LOOK_S / 2)
    assert all(peer.closed and "queued.max.request.bytes" in peer.closed for peer in idle)
    assert slow.closed is None
    assert waiting.has_room


def test_who_has_sent_everything_is_not_closed(loop: Loop) -> None:
    room = new_room(loop, 100 * MB)
    prepared = Peer(room, 100 * MB)
    room.has_arrived(prepared)
    waiting = Peer(room, MB)
    loop.go_on(LOOK_S)
    loop.go_on(LOOK_S)
    assert prepared.closed is None
    assert not waiting.has_room
    prepared.finish()
    assert waiting.has_room


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_the_room_is_never_exceeded_and_everybody_gets_some(loop: Loop, seed: int) -> None:
    chance = random.Random(seed)
    room = new_room(loop, 10 * MB)
    open_peers: list[Peer] = []
    for _ in range(400):
        action = chance.random()
        with_room = [peer for peer in open_peers if peer.has_room]
        if action < 0.5:
            open_peers.append(Peer(room, chance.randrange(1, 10 * MB)))
        elif action < 0.8 and with_room:
            peer = chance.choice(with_room)
            open_peers.remove(peer)
            peer.finish()
        elif open_peers:
            peer = open_peers.pop(chance.randrange(len(open_peers)))
            peer.close("gone")
        if chance.random() < 0.1:
            loop.go_on(LOOK_S)
        open_peers = [peer for peer in open_peers if peer.closed is None]
        assert room.taken_bytes == sum(peer.size_bytes for peer in open_peers if peer.has_room) <= 10 * MB
        assert room.waiting == sum(not peer.has_room for peer in open_peers)
        assert not open_peers or any(peer.has_room for peer in open_peers)
    while open_peers:
        peer = next(peer for peer in open_peers if peer.has_room)
        open_peers.remove(peer)
        peer.finish()
    assert (room.taken_bytes, room.waiting) == (0, 0)
