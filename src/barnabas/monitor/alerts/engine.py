"""Which alerts there are, and which messages are sent when. No clock and no I/O: the same steps always say the same.

An alert is one subject of one rule. It is pending until it has been wrong for the rule's time, then it fires, and it is
resolved when it is right again. Alerts of one cause are told in one message: those of one rule in one cluster; and while a
broker is away or the cluster cannot be read, all that follows from that. A message waits a moment for others of its cause;
later ones are told together, at most every few minutes; all is said again after the rule's `every`. In quiet times, messages
below a severity wait; what was resolved before the end of one is never told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from barnabas.monitor.alerts.conditions import Finding
from barnabas.monitor.alerts.rules import SEVERITIES, AlertFile, Quiet, Rule

GATHER_MS: Final = 15_000
"""A first message waits so long for others of its cause."""
AGAIN_MS: Final = 300_000
"""More of the same cause is told at most so often."""
ROOTS: Final = ("unreachable", "broker_away")
"""Kinds of which others follow, the greater first."""
FOLLOW: Final = frozenset(
    {
        "under_replicated",
        "offline",
        "lag",
        "time_lag",
        "verdict",
        "no_consumer",
        "failed_pipeline",
        "mirror_lag",
        "mirror_time_lag",
    }
)
"""Kinds that follow from those."""


class Key(NamedTuple):
    """An alert: what is wrong by which rule, in which cluster."""

    rule: str
    cluster: str
    subject: str


class Cause(NamedTuple):
    """What alerts of one message have in common: a rule, or the kind of what they follow from."""

    cluster: str
    name: str


@dataclass(slots=True)
class Alert:
    """since_ms: when it began to be wrong. fired_ms: when it had been so for long enough; None until then."""

    key: Key
    rule: Rule
    finding: Finding
    since_ms: int
    fired_ms: int | None = None
    cause: Cause | None = None
    resolved_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """What receivers are told. status: firing or resolved. alerts: all of the cause that fire now; of a resolved one, all
    that were told. receivers: their names."""

    status: str
    cause: Cause
    severity: str
    alerts: tuple[Alert, ...]
    receivers: tuple[str, ...]
    at_ms: int


@dataclass(slots=True)
class _Bundle:
    """The alerts of one cause. reported: those that a message has named; without those that one has called resolved."""

    began_ms: int
    sent_ms: int | None = None
    reported: dict[Key, Alert] = field(default_factory=dict)


class Engine:
    """The alerts of all clusters."""

    def __init__(self, file: AlertFile) -> None:
        self._file = file
        self._alerts: dict[Key, Alert] = {}
        self._bundles: dict[Cause, _Bundle] = {}

    @property
    def alerts(self) -> list[Alert]:
        """All that pend or fire."""
        return list(self._alerts.values())

    def step(self, now_ms: int, cluster: str, findings: Mapping[str, Iterable[Finding]]) -> list[Message]:
        """What a look at a cluster says, by rule; a rule that is left out could not be asked, and its alerts stay."""
        for rule in self._file.rules:
            if rule.name in findings:
                self._update(now_ms, cluster, rule, findings[rule.name])
        return self._messages(now_ms, cluster)

    def _update(self, now_ms: int, cluster: str, rule: Rule, findings: Iterable[Finding]) -> None:
        wrong = {Key(rule.name, cluster, finding.subject): finding for finding in findings}
        for key, finding in wrong.items():
            alert = self._alerts.get(key)
            if alert is None:
                alert = self._alerts[key] = Alert(key, rule, finding, now_ms)
            alert.finding = finding
            if alert.fired_ms is None and now_ms - alert.since_ms >= rule.for_s * 1000:
                alert.fired_ms = now_ms
        gone = [
            key
            for key in self._alerts
            if key.rule == rule.name and key.cluster == cluster and key not in wrong
        ]
        for key in gone:
            self._alerts.pop(key).resolved_ms = now_ms

    def _messages(self, now_ms: int, cluster: str) -> list[Message]:
        firing = [
            alert
            for alert in self._alerts.values()
            if alert.key.cluster == cluster and alert.fired_ms is not None
        ]
        root = next((kind for kind in ROOTS if any(alert.rule.kind == kind for alert in firing)), None)
        by_cause: dict[Cause, list[Alert]] = {}
        for alert in firing:
            if alert.cause is None or alert.cause not in self._bundles:
                # Chosen once: an alert does not change its message when the broker is back before its replicas are in sync.
                follows = root is not None and (alert.rule.kind == root or alert.rule.kind in FOLLOW)
                alert.cause = Cause(cluster, root if follows and root else alert.rule.name)
            by_cause.setdefault(alert.cause, []).append(alert)
        messages = []
        for cause in {*by_cause, *(cause for cause in self._bundles if cause.cluster == cluster)}:
            messages += self._messages_about(now_ms, cause, by_cause.get(cause, []))
        return sorted(messages, key=lambda message: message.cause)

    def _messages_about(self, now_ms: int, cause: Cause, firing: list[Alert]) -> list[Message]:
        """The messages about a cause, and what is remembered of it."""
        bundle = self._bundles.setdefault(cause, _Bundle(now_ms))
        if not firing:
            del self._bundles[cause]
            if not bundle.reported:
                return []
            return self._messages_to_receivers("resolved", now_ms, cause, list(bundle.reported.values()))
        if self._is_quiet(now_ms, firing):
            return []
        new = [alert for alert in firing if alert.key not in bundle.reported]
        if bundle.sent_ms is None:
            is_due = now_ms - bundle.began_ms >= GATHER_MS
        else:
            waited_ms = now_ms - bundle.sent_ms
            is_due = (bool(new) and waited_ms >= AGAIN_MS) or waited_ms >= 1000 * min(
                alert.rule.every_s for alert in firing
            )
        if not is_due:
            return []
        bundle.sent_ms = now_ms
        bundle.reported = {alert.key: alert for alert in firing}
        return self._messages_to_receivers("firing", now_ms, cause, firing)

    def _messages_to_receivers(
        self, status: str, now_ms: int, cause: Cause, alerts: list[Alert]
    ) -> list[Message]:
        """One message for each set of receivers."""
        everybody = tuple(receiver.name for receiver in self._file.receivers)
        by_receivers: dict[tuple[str, ...], list[Alert]] = {}
        for alert in alerts:
            by_receivers.setdefault(alert.rule.notify or everybody, []).append(alert)
        return [
            Message(status, cause, _worst(group), tuple(group), receivers, now_ms)
            for receivers, group in by_receivers.items()
            if receivers
        ]

    def _is_quiet(self, now_ms: int, firing: list[Alert]) -> bool:
        severity = SEVERITIES.index(_worst(firing))
        return any(
            severity < SEVERITIES.index(quiet.below) and is_within(quiet, now_ms)
            for quiet in self._file.quiet
        )


def _worst(alerts: Iterable[Alert]) -> str:
    return max((alert.rule.severity for alert in alerts), key=SEVERITIES.index)


def is_within(quiet: Quiet, now_ms: int) -> bool:
    """Whether this is a quiet time; one that ends before it begins goes over midnight."""
    here = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone(quiet.zone)
    minute = here.hour * 60 + here.minute
    if quiet.start < quiet.end:
        return quiet.start <= minute < quiet.end and here.weekday() in quiet.days
    if minute >= quiet.start:
        return here.weekday() in quiet.days
    return minute < quiet.end and (here - timedelta(days=1)).weekday() in quiet.days
