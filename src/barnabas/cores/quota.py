"""How much a client has used of its quota, and how long it must wait.

Byte rates and request time are averaged over a row of windows (11 of one second unless configured). A
client over its rate waits as long as it would take, had it been silent, for the average to fall to the
rate. Topic changes are counted by a token bucket: bursts are fine until it is empty. Time comes in with
each call; the same calls always give the same answers.
Source: Kafka's Rate, SampledStat, TokenBucket and QuotaUtils.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
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


# These make nobody wait longer than one window, so that a slow request does not shut a client out.
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
        """Count an amount now. O(1) on average."""
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
            self._total = 0.0  # no rounding error outlives its windows

    def elapsed_ms(self, now_ms: int) -> int:
        """The time that the average is taken over: since the oldest window began, and never much less than all
        windows together, so that a client's first request is not taken for a rate.
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
        """How long to be silent until the average is `limit` per second again; at most bound_ms."""
        rate = self.rate(now_ms)
        if rate <= limit:
            return 0
        if limit <= 0:
            return self._span_ms if bound_ms is None else bound_ms
        wait_ms = round((rate - limit) / limit * self.elapsed_ms(now_ms))
        return wait_ms if bound_ms is None else min(wait_ms, bound_ms)

    def idle(self, now_ms: int) -> bool:
        """True when nothing is left to count: a fresh one would say the same."""
        self._purge(now_ms)
        return not self._samples


class TokenBucket:
    """Credits that refill at a rate up to a burst. Spending may go below zero: that much must be waited for."""

    __slots__ = ("_tokens", "_updated_ms", "_windows_s")

    def __init__(self, windows_s: float) -> None:
        """windows_s: the burst is what refills in so many seconds."""
        self._windows_s = windows_s
        self._tokens: float | None = None
        self._updated_ms = 0

    def tokens(self, rate: float, now_ms: int) -> float:
        """Credits now."""
        burst = rate * self._windows_s
        if self._tokens is None:
            self._tokens = burst
        else:
            elapsed_ms = max(now_ms - self._updated_ms, 0)
            self._tokens = min(self._tokens + rate * elapsed_ms / 1000, burst)
        self._updated_ms = now_ms
        return self._tokens

    def spend(self, amount: float, rate: float, now_ms: int) -> float:
        """Take credits, more than there are if need be; what is left."""
        self._tokens = self.tokens(rate, now_ms) - amount
        return self._tokens

    def idle(self, rate: float, now_ms: int) -> bool:
        """True when it is full: a fresh one would say the same."""
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
        """mutation_windows_s: topic changes may come in bursts of what refills in so many seconds."""
        self._windows = windows
        self._window_ms = window_ms
        self._mutation_windows_s = mutation_windows_s
        self._table = QuotaTable({})
        self._rates: dict[tuple[Quota, str, str], RateWindows] = {}
        self._buckets: dict[tuple[str, str], TokenBucket] = {}

    def configure(self, configs: Mapping[ConfigKey, Mapping[str, str]]) -> None:
        """Take over the limits of the cluster image's `configs`. What has been used stays counted."""
        self._table = QuotaTable(configs)

    def limits(self, quota: Quota) -> bool:
        """False when nobody has such a quota, so that nothing need be recorded."""
        return quota in self._table.keys_in_use

    def record(self, use: Use) -> int:
        """Count a use; how many milliseconds the client should wait before its next, 0 when it is within."""
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
        """Take back a use that did not happen after all: a fetch that was answered empty to throttle it."""
        limit = self._limit(use)
        if limit is not None and use.quota is not Quota.MUTATION:
            self._rate(use.quota, limit).add(-use.amount, use.now_ms)

    def exhausted_ms(self, use: Use) -> int:
        """How long a client must wait before it may change topics again, without counting this request.

        For versions that know THROTTLING_QUOTA_EXCEEDED: 0 lets the request through, whatever its size.
        """
        limit = self._limit(use)
        if limit is None:
            return 0
        return self._refill_ms(self._bucket(limit).tokens(limit.rate, use.now_ms), limit.rate)

    def _refill_ms(self, left: float, rate: float) -> int:
        """How long an overdrawn bucket takes to be at zero again."""
        if left >= 0:
            return 0
        return math.ceil(-left / rate * 1000) if rate > 0 else round(self._mutation_windows_s * 1000)

    def rate(self, use: Use) -> float:
        """The rate at which the client of `use` is now (its amount does not matter)."""
        limit = self._limit(use)
        return 0.0 if limit is None else self._rate(use.quota, limit).rate(use.now_ms)

    def expire(self, now_ms: int) -> None:
        """Forget clients that have been silent; nothing that would change an answer is lost."""
        for key in [key for key, rates in self._rates.items() if rates.idle(now_ms)]:
            del self._rates[key]
        for owner, bucket in list(self._buckets.items()):
            limit = self._table.find(Quota.MUTATION, *owner)
            if limit is None or (limit.owner == owner and bucket.idle(limit.rate, now_ms)):
                del self._buckets[owner]

    def tracked(self) -> int:
        """How many clients' uses are remembered."""
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
