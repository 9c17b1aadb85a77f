"""How much a client has used of its quota, and how long it must wait.

Byte rates and request time are averaged over a number of windows (11 of one second unless configured). A client over
its rate waits until the average would have fallen to the rate, if it were silent. Topic changes are counted by a
token bucket: bursts are allowed until it is empty. Time is passed in with each call; the same calls always give the same
results.
Source: Kafka's Rate, SampledStat, TokenBucket and QuotaUtils.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from barnabas.cores.quota_entities import ConfigKey, Limit, QuotaTable


class Quota(StrEnum):
    """What is limited; the value is the config key."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"
    CONNECTION = "connection_creation_rate"


# Waiting for these is limited to one window, so that one slow request does not lock a client out.
ONE_WINDOW_AT_MOST: Final = frozenset({Quota.REQUEST, Quota.CONNECTION})


class RateWindows:
    """Amounts by window: `windows` of `window_ms` each, the newest last."""

    __slots__ = ("_samples", "_span_ms", "_total", "_window_ms", "_windows")

    def __init__(self, windows: int, window_ms: int) -> None:
        self._windows = windows
        self._window_ms = window_ms
        self._span_ms = windows * window_ms
        self._samples: deque[tuple[int, float]] = deque()
        self._total = 0.0

    def add(self, amount: float, now_ms: int) -> None:
        """Add an amount now. O(1) on average."""
        self._purge(now_ms)
        if self._samples and now_ms - self._samples[-1][0] < self._window_ms:
            start_ms, before = self._samples[-1]
            self._samples[-1] = (start_ms, before + amount)
        else:
            self._samples.append((now_ms, amount))
        self._total += amount

    def _purge(self, now_ms: int) -> None:
        while self._samples and now_ms - self._samples[0][0] >= self._span_ms:
            self._total -= self._samples.popleft()[1]
        if not self._samples:
            self._total = 0.0  # discards accumulated rounding errors

    def elapsed_ms(self, now_ms: int) -> int:
        """The time that the average is taken over: since the oldest window began, and never much less than all windows
        together, so that a client's first request is not extrapolated to a rate.
        """
        self._purge(now_ms)
        elapsed_ms = now_ms - self._samples[0][0] if self._samples else 0
        missing = self._windows - 1 - elapsed_ms // self._window_ms
        return elapsed_ms + max(missing, 0) * self._window_ms or self._window_ms

    def rate(self, now_ms: int) -> float:
        """Amount per second."""
        elapsed_ms = self.elapsed_ms(now_ms)
        return self._total * 1000 / elapsed_ms

    def wait_ms(self, limit: float, now_ms: int, bound_ms: int | None = None) -> int:
        """How long to be silent until the average is `limit` per second again, in ms; at most bound_ms."""
        rate = self.rate(now_ms)
        if rate <= limit:
            return 0
        if limit <= 0:
            return self._span_ms if bound_ms is None else bound_ms
        wait_ms = round((rate - limit) / limit * self.elapsed_ms(now_ms))
        return wait_ms if bound_ms is None else min(wait_ms, bound_ms)

    def idle(self, now_ms: int) -> bool:
        """Whether nothing is left to count: a new object would give the same results."""
        self._purge(now_ms)
        return not self._samples


class TokenBucket:
    """Credits that are refilled at a rate, up to a burst. The balance may become negative; clients wait for the debt."""

    __slots__ = ("_tokens", "_updated_ms", "_windows_s")

    def __init__(self, windows_s: float) -> None:
        """windows_s: the burst is what is refilled in this many seconds."""
        self._windows_s = windows_s
        self._tokens: float | None = None
        self._updated_ms = 0

    def tokens(self, rate: float, now_ms: int) -> float:
        """The current credits."""
        burst = rate * self._windows_s
        if self._tokens is None:
            self._tokens = burst
        else:
            elapsed_ms = max(now_ms - self._updated_ms, 0)
            self._tokens = min(self._tokens + rate * elapsed_ms / 1000, burst)
        self._updated_ms = now_ms
        return self._tokens

    def spend(self, amount: float, rate: float, now_ms: int) -> float:
        """Spend credits, even more than there are; returns the balance."""
        self._tokens = self.tokens(rate, now_ms) - amount
        return self._tokens

    def idle(self, rate: float, now_ms: int) -> bool:
        """Whether it is full: a new object would give the same results."""
        return self.tokens(rate, now_ms) >= rate * self._windows_s


@dataclass(frozen=True, slots=True)
class Use:
    """Something that a client did. amount: bytes, or percent-seconds of one thread, or partitions, or 1."""

    quota: Quota
    amount: float
    now_ms: int
    user: str = ""
    client_id: str = ""
    ip: str = ""


class QuotaCore:
    """The quotas of one broker and what its clients have used."""

    def __init__(self, windows: int = 11, window_ms: int = 1000, mutation_windows_s: float = 11.0) -> None:
        """mutation_windows_s: bursts of topic changes may be as large as what is refilled in this many seconds."""
        self._windows = windows
        self._window_ms = window_ms
        self._mutation_windows_s = mutation_windows_s
        self._table = QuotaTable({})
        self._rates: dict[tuple[Quota, str, str], RateWindows] = {}
        self._buckets: dict[tuple[str, str], TokenBucket] = {}

    def configure(self, configs: Mapping[ConfigKey, Mapping[str, str]]) -> None:
        """Take the limits from the cluster image's `configs`. Recorded use is kept."""
        self._table = QuotaTable(configs)

    def limits(self, quota: Quota) -> bool:
        """False if no such quota is set, so that nothing need be recorded."""
        return quota in self._table.keys_in_use

    def record(self, use: Use) -> int:
        """Record a use; returns how many ms the client should wait before its next, 0 if it is within its quota."""
        limit = self._limit(use)
        if limit is None:
            return 0
        if use.quota is Quota.MUTATION:
            left = self._bucket(limit).spend(use.amount, limit.rate, use.now_ms)
            return self._refill_ms(left, limit.rate)
        rates = self._rate(use.quota, limit)
        rates.add(use.amount, use.now_ms)
        bound_ms = self._window_ms if use.quota in ONE_WINDOW_AT_MOST else None
        return rates.wait_ms(limit.rate, use.now_ms, bound_ms)

    def unrecord(self, use: Use) -> None:
        """Take back a use that did not happen: a fetch that was answered empty in order to throttle it."""
        limit = self._limit(use)
        if limit is not None and use.quota is not Quota.MUTATION:
            self._rate(use.quota, limit).add(-use.amount, use.now_ms)

    def exhausted_ms(self, use: Use) -> int:
        """How long a client must wait before it may change topics again, in ms, not counting this request.

        For versions that know THROTTLING_QUOTA_EXCEEDED: 0 lets the request through, whatever its size.
        """
        limit = self._limit(use)
        if limit is None:
            return 0
        return self._refill_ms(self._bucket(limit).tokens(limit.rate, use.now_ms), limit.rate)

    def _refill_ms(self, left: float, rate: float) -> int:
        """How long it takes to refill an overdrawn bucket to zero, in ms."""
        if left >= 0:
            return 0
        return math.ceil(-left / rate * 1000) if rate > 0 else round(self._mutation_windows_s * 1000)

    def rate(self, use: Use) -> float:
        """The current rate of the client of `use` (whose amount is ignored)."""
        limit = self._limit(use)
        return 0.0 if limit is None else self._rate(use.quota, limit).rate(use.now_ms)

    def uses(self, now_ms: int) -> Iterator[tuple[Quota, str, str, float]]:
        """(quota, user, client id, present rate) of those whose use is recorded; an address stands for the user of a
        connection quota."""
        for (quota, user, client_id), rates in list(self._rates.items()):
            yield quota, user, client_id, rates.rate(now_ms)

    def expire(self, now_ms: int) -> None:
        """Forget silent clients, unless that would change any result."""
        for key in [key for key, rates in self._rates.items() if rates.idle(now_ms)]:
            del self._rates[key]
        for owner, bucket in list(self._buckets.items()):
            limit = self._table.find(Quota.MUTATION, *owner)
            if limit is None or (limit.owner == owner and bucket.idle(limit.rate, now_ms)):
                del self._buckets[owner]

    def tracked(self) -> int:
        """The number of clients whose use is remembered."""
        return len(self._rates) + len(self._buckets)

    def _limit(self, use: Use) -> Limit | None:
        if use.quota not in self._table.keys_in_use:
            return None
        if use.quota is Quota.CONNECTION:
            return self._table.find_ip(use.ip)
        return self._table.find(use.quota, use.user, use.client_id)

    def _rate(self, quota: Quota, limit: Limit) -> RateWindows:
        key = (quota, *limit.owner)
        rates = self._rates.get(key)
        if rates is None:
            rates = self._rates[key] = RateWindows(self._windows, self._window_ms)
        return rates

    def _bucket(self, limit: Limit) -> TokenBucket:
        bucket = self._buckets.get(limit.owner)
        if bucket is None:
            bucket = self._buckets[limit.owner] = TokenBucket(self._mutation_windows_s)
        return bucket
