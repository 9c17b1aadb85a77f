# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Where the time of requests goes: counted in compiled code, so that it costs next to nothing, and read when somebody asks.

Every request is counted. The parts of its time are Kafka's (`RequestMetrics`): waiting to be handled, work of the handler,
waiting for something else (followers, records, other members), and the answer's way to the socket. On the fast paths of
produce and fetch, on which a request takes a few microseconds, the time of one request in eight is measured, which counts
eightfold; a clock that costs nothing, and is right within some milliseconds, looks whether one of the others was slow.
"""

from collections import deque

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memset
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, clockid_t, timespec

from barnabas.runtime.slow import SLOW_US as SLOW_US_, WAITING_APIS, SlowRequest, topics_of

cdef extern from *:
    """
    #include <time.h>
    #ifdef CLOCK_MONOTONIC_COARSE
    #define CHEAP_CLOCK CLOCK_MONOTONIC_COARSE
    #else
    #define CHEAP_CLOCK CLOCK_MONOTONIC
    #endif
    """
    const clockid_t CHEAP_CLOCK
    int __builtin_clzll(unsigned long long value) nogil

cdef enum:
    SUB_BITS = 3                # 8 buckets for each power of two: a value is known to 12.5 %
    SUBS = 1 << SUB_BITS
    SAMPLED_FROM = 64           # so many requests of a kind are all measured
    SAMPLE = 8

SLOW_KEPT = 500
cdef double FORGOTTEN = 0.01
cdef double TOLERANCE = 1e-6     # of sums of ages
cdef int64_t SLOW_US = SLOW_US_


cdef inline int64_t read_clock(clockid_t clock) noexcept nogil:
    cdef timespec now
    clock_gettime(clock, &now)
    return <int64_t>now.tv_sec * 1000000 + now.tv_nsec // 1000


cdef int64_t clock_us() noexcept nogil:
    """The monotonic clock, in µs."""
    return read_clock(CLOCK_MONOTONIC)


def now_us():
    """The monotonic clock, in µs."""
    return clock_us()


cdef inline int bucket_of(int64_t value) noexcept nogil:
    cdef int exponent, bucket
    if value < SUBS:
        return 0 if value < 0 else <int>value
    exponent = 63 - __builtin_clzll(<uint64_t>value)
    bucket = ((exponent - SUB_BITS + 1) << SUB_BITS) + <int>((value >> (exponent - SUB_BITS)) & (SUBS - 1))
    return bucket if bucket < BUCKETS else BUCKETS - 1


cdef inline int64_t begin_of(int bucket) noexcept nogil:
    """The least value of a bucket."""
    cdef int octave = bucket >> SUB_BITS
    if octave == 0:
        return bucket
    return <int64_t>(SUBS + (bucket & (SUBS - 1))) << (octave - 1)


cdef class Histogram:
    """Values of any size, known to 12.5 %: how many since the start, and weighted by their age for percentiles."""

    def __cinit__(self):
        memset(self._counts, 0, sizeof(self._counts))
        memset(self._recent, 0, sizeof(self._recent))

    cpdef void add(self, int64_t value, int64_t times=1) noexcept:
        """Count a value `times` times."""
        cdef int bucket = bucket_of(value)
        self._counts[bucket] += times
        self._recent[bucket] += times
        self.count += times
        self.sum += value * times

    def age(self, double factor):
        """Give what was counted so far less weight in percentiles."""
        cdef int i
        for i in range(BUCKETS):
            self._recent[i] *= factor
            if self._recent[i] < FORGOTTEN:
                self._recent[i] = 0

    def quantiles(self, fractions):
        """For each fraction, in ascending order, the value that so many of the recent ones do not exceed; 0 without any."""
        cdef double total = 0, seen = 0, want
        cdef int i, bucket = -1
        for i in range(BUCKETS):
            total += self._recent[i]
        values = []
        for fraction in fractions:
            want = <double>fraction * total
            while bucket < BUCKETS - 1 and (bucket < 0 or seen < want - TOLERANCE):
                bucket += 1
                seen += self._recent[bucket]
            values.append(0.0 if total == 0 else (begin_of(bucket) + begin_of(bucket + 1) - 1) / 2)
        return values

    def at_most(self, bounds):
        """For each bound, in ascending order, how many values since the start are not above it, as far as buckets tell."""
        cdef int bucket = 0
        cdef int64_t seen = 0
        counts = []
        for bound in bounds:
            while bucket < BUCKETS and begin_of(bucket + 1) - 1 <= <int64_t>bound:
                seen += self._counts[bucket]
                bucket += 1
            counts.append(seen)
        return counts

    def extremes(self):
        """The least and the greatest of the recent values; (0, 0) without any."""
        cdef int i, low = -1, high = -1
        for i in range(BUCKETS):
            if self._recent[i] > 0:
                low = i if low < 0 else low
                high = i
        if low < 0:
            return 0, 0
        return begin_of(low), begin_of(high + 1) - 1

    def plus(self, Histogram other):
        """A new histogram of the values of both."""
        cdef Histogram both = Histogram()
        cdef int i
        for i in range(BUCKETS):
            both._counts[i] = self._counts[i] + other._counts[i]
            both._recent[i] = self._recent[i] + other._recent[i]
        both.count, both.sum = self.count + other.count, self.sum + other.sum
        return both


cdef class RequestStats:
    """The requests of one kind. Times are in µs, `size` in bytes. errors: how many answers had each error, by its name."""

    def __init__(self, str name, times):
        self.name = name
        self._times = times
        self._waits = name in WAITING_APIS
        self.total, self.queue, self.local, self.remote = Histogram(), Histogram(), Histogram(), Histogram()
        self.throttle, self.response_queue, self.response_send = Histogram(), Histogram(), Histogram()
        self.size = Histogram()
        self.errors = {}
        memset(self._versions, 0, sizeof(self._versions))

    @property
    def parts(self):
        """(Kafka's name, histogram) of each part of the time."""
        return (
            ("TotalTimeMs", self.total), ("RequestQueueTimeMs", self.queue), ("LocalTimeMs", self.local),
            ("RemoteTimeMs", self.remote), ("ThrottleTimeMs", self.throttle),
            ("ResponseQueueTimeMs", self.response_queue), ("ResponseSendTimeMs", self.response_send),
        )

    @property
    def versions(self):
        """How many requests came in each version."""
        cdef int i
        return {i: self._versions[i] for i in range(64) if self._versions[i]}

    @property
    def requests(self):
        """How many requests came."""
        cdef int64_t count = 0
        cdef int i
        for i in range(64):
            count += self._versions[i]
        return count

    def age(self, double factor):
        """See Histogram."""
        for _, part in self.parts:
            part.age(factor)
        self.size.age(factor)

    def plus(self, RequestStats other, str name):
        """New numbers: those of both."""
        cdef RequestStats both = RequestStats(name, None)
        cdef int i
        both.total, both.queue = self.total.plus(other.total), self.queue.plus(other.queue)
        both.local, both.remote = self.local.plus(other.local), self.remote.plus(other.remote)
        both.throttle = self.throttle.plus(other.throttle)
        both.response_queue = self.response_queue.plus(other.response_queue)
        both.response_send = self.response_send.plus(other.response_send)
        both.size = self.size.plus(other.size)
        for i in range(64):
            both._versions[i] = self._versions[i] + other._versions[i]
        for errors in (self.errors, other.errors):
            for error, count in errors.items():
                both.errors[error] = both.errors.get(error, 0) + count
        return both

    def begin(self, int64_t begun_us, int version, int64_t size_bytes, request):
        """A request that may take long, and arrived at `begun_us`. request: itself, or the names of its topics."""
        cdef Timing timing = Timing.__new__(Timing)
        self._versions[version & 63] += 1
        self.size.add(size_bytes)
        timing.stats = self
        timing._begun = begun_us
        timing._times = 1
        timing.topics = request
        return timing

    def failed(self, str error):
        """An answer has this error."""
        self.errors[error] = self.errors.get(error, 0) + 1

    cpdef int64_t begin_quick(self) noexcept:
        """Requests are about to be tried on a fast path. Returns `begun_us` of `quick`, if they are answered there."""
        return read_clock(CLOCK_MONOTONIC if self.next_weight() else CHEAP_CLOCK)

    cdef int64_t next_weight(self) noexcept:
        """For how many requests the next one is measured; 0: it is not."""
        cdef int64_t number = self._counted + 1
        if number <= SAMPLED_FROM:
            return 1
        return 0 if number & (SAMPLE - 1) else SAMPLE

    cpdef Timing quick(
        self, int64_t begun_us, int64_t requests, int version, int64_t size_bytes, topics=None
    ):
        """Requests that have just been answered on a fast path, `requests` of them in one go, with `size_bytes` in all.
        Returns what the connection should note until they are sent, or None."""
        cdef int64_t weight = self.next_weight()
        cdef int64_t now = read_clock(CLOCK_MONOTONIC if weight else CHEAP_CLOCK)
        cdef Timing timing
        self._counted += 1
        self._versions[version & 63] += requests
        self.size.add(size_bytes // requests, requests)
        if weight:
            self.local.add((now - begun_us) // requests, weight * requests)
        elif now - begun_us < SLOW_US:
            return None
        timing = Timing.__new__(Timing)
        timing.stats = self
        timing._begun = timing._handling = begun_us
        timing._returned = timing._answered = now
        timing._times = weight * requests
        timing._is_quick = True
        timing.topics = topics
        return timing


cdef class Timing:
    """One request. The methods are called in the order in which they stand here; `finish` only if the handler had to wait."""

    def handle(self):
        """The handler is about to run."""
        self._handling = clock_us()

    def wait(self):
        """The handler has returned, and the answer comes later."""
        self._returned = clock_us()

    def finish(self):
        """What the request waited for has come."""
        self._finished = clock_us()

    def answer(self, int64_t throttle_ms):
        """The answer is queued."""
        self._answered = clock_us()
        self._throttle_us = throttle_ms * 1000
        if self._handling == 0:
            self._handling = self._begun
        if self._answered - self._begun < SLOW_US:
            self.topics = None
        elif type(self.topics) is not tuple:
            self.topics = topics_of(self.topics)

    cdef int64_t local_us(self) noexcept:
        if self._finished == 0:
            return self._answered - self._handling
        return self._returned - self._handling + self._answered - self._finished

    cdef int64_t remote_us(self) noexcept:
        return self._finished - self._returned if self._finished else 0

    cdef settle(self, int64_t sent, connection):
        cdef RequestStats stats = self.stats
        cdef int64_t local = self.local_us(), remote = self.remote_us(), total = sent - self._begun
        if self._times:
            stats.total.add(total, self._times)
            stats.queue.add(self._handling - self._begun, self._times)
            stats.remote.add(remote, self._times)
            stats.throttle.add(self._throttle_us, self._times)
            stats.response_queue.add(self._flushing - self._answered, self._times)
            stats.response_send.add(sent - self._flushing, self._times)
        if not self._is_quick:
            stats.local.add(local)
        if total - (remote if stats._waits else 0) >= SLOW_US and stats._times is not None:
            stats._times.slow.append(
                SlowRequest.of(
                    stats.name, connection, self.topics, total, self._handling - self._begun, local, remote,
                    self._throttle_us, self._flushing - self._answered, sent - self._flushing,
                )
            )
        self.topics = None


def begin_sending(list timings):
    """The answers of these requests are about to be written to the socket."""
    cdef int64_t now = clock_us()
    cdef Timing timing
    for timing in timings:
        if timing._flushing == 0:
            timing._flushing = now


def settle(list timings, connection):
    """The answers of these requests have been written to the socket; the list is emptied."""
    cdef int64_t now = clock_us()
    cdef Timing timing
    for timing in timings:
        if timing._flushing == 0:
            timing._flushing = timing._answered
        timing.settle(now, connection)
    timings.clear()


class RequestTimes:
    """The requests of a broker by their kind. slow: the last slow ones."""

    def __init__(self):
        self._by_name = {}
        self.slow = deque(maxlen=SLOW_KEPT)

    def of(self, name):
        """The numbers of the requests with this name."""
        stats = self._by_name.get(name)
        if stats is None:
            stats = self._by_name[name] = RequestStats(name, self)
        return stats

    @property
    def all(self):
        """All kinds of which requests have come."""
        return list(self._by_name.values())
