"""Puts rules, looks at clusters and receivers together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Final

from barnabas.client.errors import ClientError
from barnabas.client.options import ClientOptions
from barnabas.monitor.alerts.asking import Now, certificate_of, copied_by_links, pipelines_of
from barnabas.monitor.alerts.conditions import Certificate, Copied, Finding, Past, View, findings
from barnabas.monitor.alerts.engine import Alert, Engine
from barnabas.monitor.alerts.rules import AlertFile
from barnabas.monitor.alerts.sending import Mailbox, time_text
from barnabas.monitor.burrow.board import Board
from barnabas.monitor.snapshot import Snapshot

log = logging.getLogger("barnabas.monitor.alerts")

CERTIFICATES_EVERY_S: Final = 3600.0
PIPELINES_EVERY_S: Final = 30.0
LINKS_EVERY_S: Final = 15.0
OF_LINKS: Final = frozenset({"mirror_lag", "mirror_time_lag", "mirror_failed"})
NOT_OF_A_LOOK: Final = frozenset({"unreachable", "certificate", "failed_pipeline"})
"""Kinds that are judged although the cluster does not answer."""


class Alerts:
    """Belongs to one event loop. clusters: how each is reached."""

    def __init__(self, file: AlertFile, clusters: Mapping[str, ClientOptions]) -> None:
        self.file = file
        self.mailboxes = {receiver.name: Mailbox(receiver, clusters) for receiver in file.receivers}
        self._clusters = clusters
        self._engine = Engine(file)
        self._pasts = {name: Past() for name in clusters}
        self._certificates: dict[str, tuple[Certificate, ...]] = {}
        self._pipelines: dict[str, list[tuple[str, str, str]]] = {}
        self._copied: dict[str, list[Copied]] = {}
        self._copied_due = {name: Now(LINKS_EVERY_S) for name in clusters}
        self._certificates_due = {name: Now(CERTIFICATES_EVERY_S) for name in clusters}
        self._pipelines_due = Now(PIPELINES_EVERY_S)
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to deliver messages."""
        for mailbox in self.mailboxes.values():
            mailbox.start()

    async def stop(self) -> None:
        """End delivering."""
        for task in self._tasks:
            task.cancel()
        for task in list(self._tasks):
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for mailbox in self.mailboxes.values():
            await mailbox.stop()

    def note(self, cluster: str, seen: Snapshot, board: Board, trouble: str | None) -> None:
        """A look at a cluster; messages that follow from it are put into the mailboxes."""
        past = self._pasts[cluster]
        past.note(seen)
        self._ask_others(cluster)
        view = View(
            cluster,
            seen.now_ms,
            past,
            board,
            trouble,
            self._certificates.get(cluster, ()),
            self._pipelines,
            self._copied.get(cluster, ()),
        )
        findings_by_rule: dict[str, Iterable[Finding]] = {}
        for rule in self.file.rules:
            # Of a cluster that does not answer nothing else is known: its alerts stay as they are.
            if trouble is not None and rule.kind not in NOT_OF_A_LOOK:
                continue
            try:
                findings_by_rule[rule.name] = findings(rule, view)
            except Exception:
                log.exception("a rule cannot be judged", extra={"rule": rule.name, "cluster": cluster})
        for message in self._engine.step(seen.now_ms, cluster, findings_by_rule):
            for name in message.receivers:
                self.mailboxes[name].put(message)

    def _ask_others(self, cluster: str) -> None:
        kinds = {rule.kind for rule in self.file.rules}
        if "certificate" in kinds and self._certificates_due[cluster].is_due():
            self._begin(self._read_certificates(cluster))
        if kinds & OF_LINKS and self._copied_due[cluster].is_due():
            self._begin(self._read_links(cluster))
        if "failed_pipeline" in kinds and self._pipelines_due.is_due():
            self._begin(self._read_pipelines())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read_certificates(self, cluster: str) -> None:
        """Of the brokers where the cluster is reached by TLS, and of the addresses that rules name."""
        rules = [rule for rule in self.file.rules if rule.kind == "certificate"]
        addresses = {address for rule in rules for address in rule.values["address"]}
        last = self._pasts[cluster].last
        if self._clusters[cluster].tls is not None and last is not None:
            addresses |= set(last.brokers.values())
        self._certificates[cluster] = tuple(
            [await asyncio.to_thread(certificate_of, address) for address in sorted(addresses)]
        )

    async def _read_links(self, cluster: str) -> None:
        try:
            self._copied[cluster] = await asyncio.to_thread(copied_by_links, self._clusters[cluster])
        except ClientError as error:
            log.warning("links cannot be read", extra={"cluster": cluster, "reason": str(error)})

    async def _read_pipelines(self) -> None:
        servers = {rule.values["server"] for rule in self.file.rules if rule.kind == "failed_pipeline"}
        for server in sorted(servers):
            self._pipelines[server] = await asyncio.to_thread(pipelines_of, server)

    def shown(self) -> dict[str, Any]:
        """The alerts that there are, the rules, and what became of messages, for the API."""
        return {
            "alerts": [_shown(alert) for alert in self._engine.alerts],
            "rules": [
                {"name": rule.name, "kind": rule.kind, "severity": rule.severity, "line": rule.line}
                for rule in self.file.rules
            ],
            "receivers": [
                {
                    "name": name,
                    "kind": mailbox.receiver.kind,
                    "sent": mailbox.delivery.sent,
                    "failed": mailbox.delivery.failed,
                    "last_error": mailbox.delivery.last_error,
                }
                for name, mailbox in self.mailboxes.items()
            ],
        }


def _shown(alert: Alert) -> dict[str, Any]:
    return {
        "state": "pending" if alert.fired_ms is None else "firing",
        "rule": alert.rule.name,
        "kind": alert.rule.kind,
        "severity": alert.rule.severity,
        "cluster": alert.key.cluster,
        "subject": alert.key.subject,
        "value": alert.finding.value,
        "text": alert.finding.text,
        "since": time_text(alert.since_ms),
    }
