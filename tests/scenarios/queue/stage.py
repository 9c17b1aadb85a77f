"""Plays stories of one share group's queue: each line is an event, each indented line what came of it.

log 0-4 5-9 ... (batches that are there; markers stand as !10) | limits tries=2 lock=30s window=10
MEMBER takes COUNT [exactly] | MEMBER accepts|releases|rejects|renews|skips 0-3 ... | wait 30s | MEMBER gone
deleted up to OFFSET | store fails (the next change) | restart
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from barnabas.cores.group.share.partition import (
    Ack,
    AckBatch,
    AcquireMode,
    Delivery,
    ShareChange,
    ShareLimits,
    SharePartitionCore,
    StateBatch,
)
from barnabas.cores.group.share.state import ShareKey, ShareStateCore
from barnabas.wire.errors import ApiError

KEY = ShareKey("g", UUID(int=1), 0)
ACKS = {
    "accepts": Ack.ACCEPT,
    "releases": Ack.RELEASE,
    "rejects": Ack.REJECT,
    "renews": Ack.RENEW,
    "skips": Ack.GAP,
}
OPTIONS = {
    "tries": "delivery_count_limit",
    "lock": "record_lock_duration_ms",
    "window": "partition_max_record_locks",
}


class Stage:
    """One queue with its log and its stored state."""

    def __init__(self) -> None:
        self.limits = ShareLimits()
        self.states = ShareStateCore()
        self.states.apply(self.states.initialize(0, KEY, 0, 0))
        self.queue = SharePartitionCore(self.limits, 0)
        self.batches: list[tuple[int, int, bool]] = []
        self.now_ms = 0
        self.store_fails = False

    def run(self, story: str) -> str:
        """The story with what came of each event."""
        lines: list[str] = []
        for line in story.splitlines():
            if line.startswith(" "):
                continue
            lines.append(line)
            if line and not line.startswith("#"):
                try:
                    lines += [f"    {row}" for row in self._play(line.split())]
                except ApiError as error:
                    lines.append(f"    {error.code.name}: {error.message}")
        return "\n".join(lines) + "\n"

    def _play(self, words: list[str]) -> list[str]:
        match words:
            case ["log", *batches]:
                self.batches += [(*_span(batch.lstrip("!")), batch.startswith("!")) for batch in batches]
            case ["limits", *options]:
                pairs = (option.split("=") for option in options)
                self.limits = replace(self.limits, **{OPTIONS[name]: _number(text) for name, text in pairs})
                self.queue.limits = self.limits
            case ["store", "fails"]:
                self.store_fails = True
            case ["restart"]:
                state = self.states.states[KEY]
                self.queue = SharePartitionCore(self.limits, state.start_offset, state.batches)
            case ["deleted", "up", "to", offset]:
                return self._store(self.queue.log_start_moved(int(offset)))
            case ["wait", time]:
                self.now_ms += _number(time)
                return self._store(self.queue.release_expired(self.now_ms))
            case [member, "gone"]:
                return self._store(self.queue.release_member(member))
            case [member, "takes", count, *exactly]:
                return self._take(member, int(count), bool(exactly))
            case [member, verb, *spans]:
                acks = [AckBatch(*_span(span), (ACKS[verb],)) for span in spans]
                return self._store(self.queue.acknowledge(self.now_ms, member, acks))
        return []

    def _take(self, member: str, count: int, exactly: bool) -> list[str]:
        offset = self.queue.next_fetch_offset()
        if offset is None:
            return ["the window is full"]
        batches = [batch for batch in self.batches if batch[1] >= offset]
        if not batches:
            return ["nothing there"]
        ranges = [(max(first, offset), last) for first, last, is_marker in batches if not is_marker]
        mode = AcquireMode.RECORD_LIMIT if exactly else AcquireMode.BATCH_OPTIMIZED
        change = self.queue.acquire(
            self.now_ms, member, offset, ranges, count, mode, max(item[1] for item in batches) + 1
        )
        got = [f"{_text(run.first, run.last)} (try {run.delivery_count})" for run in change.acquired]
        return [f"{member} has {', '.join(got) or 'nothing'}", *self._store(change)]

    def _store(self, change: ShareChange) -> list[str]:
        if not change.must_store:
            return []
        if self.store_fails:
            self.store_fails = False
            self.queue.abandon(change)
            return ["taken back: it could not be stored"]
        self.states.apply(self.states.write(self.now_ms, KEY, 0, 0, change.start_offset, change.writes))
        letters = [
            f"dead letter: {letter.offset}, try {letter.delivery_count}, {letter.reason}"
            for letter in change.dead_letters
        ]
        return [*letters, self._stored()]

    def _stored(self) -> str:
        state = self.states.states[KEY]
        rest = ", ".join(_settled(batch) for batch in state.batches)
        return f"stored: from {state.start_offset}" + (f": {rest}" if rest else "")


def _settled(batch: StateBatch) -> str:
    word = {Delivery.AVAILABLE: f"waits after try {batch.delivery_count}", Delivery.ACKNOWLEDGED: "accepted"}
    return f"{_text(batch.first, batch.last)} {word.get(batch.state, 'given up')}"


def _span(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def _text(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _number(text: str) -> int:
    return int(text[:-1]) * 1000 if text.endswith("s") else int(text)
