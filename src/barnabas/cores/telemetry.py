"""Client telemetry (KIP-714): which metrics each client should push, how often, and which pushes are accepted.

Administrators define subscriptions: metrics, an interval, and the clients that they apply to. A client asks for its
subscription (`subscribe`) and then pushes at that interval (`push`). One that asks or pushes too early gets an error.
The data about a client can be lost without harm: its subscription id is computed from the subscription's contents.
Source: Kafka's ClientMetricsManager and ClientMetricsInstance.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from re import Pattern
from typing import Final, NamedTuple
from uuid import UUID

from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.primitives import ZERO_UUID

ALL_METRICS: Final = "*"
INTERVAL_MS_DEFAULT: Final = 300_000
COMPRESSIONS: Final = (4, 3, 1, 2)
"""The numbers of the codecs zstd, lz4, gzip, snappy: the best first."""
INSTANCES_MAX: Final = 16_384
SILENT_INTERVALS_MAX: Final = 3
# After these errors a client asks for its subscription at once, and may do so.
ASKS_AT_ONCE_AFTER: Final = frozenset(
    {ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}
)


class Subscription(NamedTuple):
    """One subscription. match: key of `Client.matchable` -> expression that must match the whole value."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, Pattern[str]]


@dataclass(frozen=True, slots=True)
class Client:
    """A client as known to its connection."""

    instance_id: UUID
    client_id: str
    software_name: str
    software_version: str
    address: str
    port: int

    def matchable(self) -> dict[str, str]:
        """What subscriptions can select clients by, as names and texts."""
        return {
            "client_instance_id": str(self.instance_id),
            "client_id": self.client_id,
            "client_software_name": self.software_name,
            "client_software_version": self.software_version,
            "client_source_address": self.address,
            "client_source_port": str(self.port),
        }


class Wanted(NamedTuple):
    """What one client should push. metrics: prefixes of names; ("*",) all, () none."""

    metrics: tuple[str, ...]
    interval_ms: int
    subscription_id: int


@dataclass(slots=True)
class Instance:
    """What is remembered of one client."""

    client: Client
    wanted: Wanted
    asked_ms: int | None = None
    pushed_ms: int | None = None
    error: ErrorCode = ErrorCode.NONE
    terminating: bool = False

    def is_silent(self, now_ms: int) -> bool:
        """Whether the client has not pushed for so long that it can be forgotten."""
        last_ms = max(self.asked_ms or 0, self.pushed_ms or 0)
        return now_ms - last_ms > SILENT_INTERVALS_MAX * self.wanted.interval_ms


class TelemetryCore:
    """The clients of one broker. `configure` replaces the subscriptions."""

    def __init__(self, bytes_max: int, subscriptions: Sequence[Subscription] = ()) -> None:
        """bytes_max: limit on one push, as sent."""
        self.bytes_max = bytes_max
        self.instances: dict[UUID, Instance] = {}
        self._subscriptions = tuple(subscriptions)

    def configure(self, subscriptions: Sequence[Subscription]) -> None:
        """Replace the subscriptions. Clients notice at their next push, which gets UNKNOWN_SUBSCRIPTION_ID."""
        self._subscriptions = tuple(subscriptions)
        for instance in self.instances.values():
            instance.wanted = self.wanted(instance.client)

    @property
    def has_subscriptions(self) -> bool:
        """Whether there is any subscription."""
        return bool(self._subscriptions)

    def wanted(self, client: Client) -> Wanted:
        """The combination of all subscriptions that match a client."""
        values = client.matchable()
        matching = [
            subscription
            for subscription in self._subscriptions
            if all(pattern.fullmatch(values[key]) for key, pattern in subscription.match.items())
        ]
        names = {name for row in matching for name in row.metrics}
        metrics = (ALL_METRICS,) if ALL_METRICS in names else tuple(sorted(names))
        interval_ms = min((row.interval_ms for row in matching), default=INTERVAL_MS_DEFAULT)
        text = f"{','.join(metrics)} {interval_ms} {client.instance_id}"
        unsigned = zlib.crc32(text.encode())
        return Wanted(metrics, interval_ms, unsigned - (1 << 32) if unsigned >> 31 else unsigned)

    def subscribe(self, client: Client, now_ms: int) -> Wanted:
        """A client asks what to push. Raises ApiError(THROTTLING_QUOTA_EXCEEDED) if it asks too early."""
        instance = self._instance(client, now_ms)
        last_ms = max(
            (row for row in (instance.asked_ms, instance.pushed_ms) if row is not None), default=None
        )
        too_soon = last_ms is not None and now_ms - last_ms < instance.wanted.interval_ms
        if too_soon and instance.error not in ASKS_AT_ONCE_AFTER:
            raise self._refused(instance, ErrorCode.THROTTLING_QUOTA_EXCEEDED, "it asked before its interval")
        instance.asked_ms = now_ms
        instance.error = ErrorCode.NONE
        return instance.wanted

    def push(
        self,
        client: Client,
        subscription_id: int,
        compression: int,
        size_bytes: int,
        now_ms: int,
        *,
        terminating: bool,
    ) -> None:
        """A client pushes metrics, `terminating`: for the last time. Raises ApiError if they are not accepted."""
        if client.instance_id == ZERO_UUID:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a push of metrics needs a client instance id")
        instance = self._instance(client, now_ms)
        if instance.terminating:
            raise self._refused(instance, ErrorCode.INVALID_REQUEST, "it said before that it terminates")
        if not self._is_its_turn(instance, now_ms) and not terminating:
            raise self._refused(
                instance, ErrorCode.THROTTLING_QUOTA_EXCEEDED, "it pushed before its interval"
            )
        instance.pushed_ms = now_ms
        if subscription_id != instance.wanted.subscription_id:
            raise self._refused(
                instance,
                ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
                "its subscription has changed; it must request it again",
            )
        if compression not in (0, *COMPRESSIONS):
            raise self._refused(
                instance, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"no codec has the number {compression}"
            )
        if size_bytes > self.bytes_max:
            raise self._refused(
                instance,
                ErrorCode.TELEMETRY_TOO_LARGE,
                f"{size_bytes} bytes are more than telemetry.max.bytes, which is {self.bytes_max}",
            )
        instance.terminating = terminating
        instance.error = ErrorCode.NONE

    @staticmethod
    def _is_its_turn(instance: Instance, now_ms: int) -> bool:
        """The first push after a subscription request may come at any time, since clients randomize it."""
        if instance.pushed_ms is None:
            return True
        if instance.asked_ms is not None and instance.asked_ms > instance.pushed_ms:
            return True
        return now_ms - instance.pushed_ms >= instance.wanted.interval_ms

    def expire(self, now_ms: int) -> list[UUID]:
        """Forget clients that have been silent for too long, and return their ids."""
        gone = [key for key, instance in self.instances.items() if instance.is_silent(now_ms)]
        for key in gone:
            del self.instances[key]
        return gone

    def _instance(self, client: Client, now_ms: int) -> Instance:
        instance = self.instances.get(client.instance_id)
        if instance is None:
            if len(self.instances) >= INSTANCES_MAX:
                self.expire(now_ms)
            if len(self.instances) >= INSTANCES_MAX:
                del self.instances[next(iter(self.instances))]
            instance = self.instances[client.instance_id] = Instance(client, self.wanted(client))
        elif instance.client != client:  # the same client on another connection
            instance.client, instance.wanted = client, self.wanted(client)
        return instance

    @staticmethod
    def _refused(instance: Instance, code: ErrorCode, why: str) -> ApiError:
        instance.error = code
        return ApiError(code, f"client instance {instance.client.instance_id}: {why}")
