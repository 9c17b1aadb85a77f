"""Tells receivers: a web hook, a mail server, a topic. Each has a queue and a thread of its own, so that one that hangs
delays nobody else; what it cannot take in time is left out and counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import smtplib
import ssl
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from typing import Any, Final

from barnabas.client.blocking import BlockingClient
from barnabas.client.errors import ClientError
from barnabas.client.options import ClientOptions
from barnabas.http_client import Address, NoAnswer, ask, without_login
from barnabas.monitor.alerts.engine import Alert, Message
from barnabas.monitor.alerts.rules import Receiver
from barnabas.records.batch import Record, build_batch

log = logging.getLogger("barnabas.monitor.alerts")

TIMEOUT_S: Final = 10.0
WHOLE_S: Final = 30.0
"""A receiver that answers byte by byte is given up after this."""
TRIES: Final = 3
PAUSE_S: Final = 2.0
QUEUE_MAX: Final = 100
LISTED_MAX: Final = 20
"""Alerts that a mail lists; it counts the others."""


class SendError(Exception):
    """A message was not delivered. The sentence says why."""


def time_text(at_ms: int) -> str:
    """As Alertmanager writes times."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def headline(message: Message) -> str:
    """One line about a message."""
    count = len(message.alerts)
    first = message.alerts[0].finding.text
    more = f" (and {count - 1} more)" if count > 1 else ""
    state = "resolved" if message.status == "resolved" else message.severity
    return f"[{state}] {message.cause.cluster}: {first}{more}"


def body(message: Message) -> dict[str, Any]:
    """A message as JSON, in the format of Alertmanager's web hooks (version 4), which many receivers take."""
    return {
        "version": "4",
        "groupKey": f"{message.cause.cluster}/{message.cause.name}",
        "truncatedAlerts": 0,
        "status": message.status,
        "receiver": ",".join(message.receivers),
        "groupLabels": {"cluster": message.cause.cluster, "cause": message.cause.name},
        "commonLabels": {"cluster": message.cause.cluster, "severity": message.severity},
        "commonAnnotations": {"summary": headline(message)},
        "externalURL": "",
        "alerts": [_alert(alert, message) for alert in message.alerts],
    }


def _alert(alert: Alert, message: Message) -> dict[str, Any]:
    is_over = message.status == "resolved" or alert.resolved_ms is not None
    return {
        "status": "resolved" if is_over else "firing",
        "labels": {
            "alertname": alert.rule.name,
            "kind": alert.rule.kind,
            "cluster": alert.key.cluster,
            "subject": alert.key.subject,
            "severity": alert.rule.severity,
        },
        "annotations": {"summary": alert.finding.text},
        "startsAt": time_text(alert.since_ms),
        "endsAt": time_text(alert.resolved_ms or message.at_ms) if is_over else "0001-01-01T00:00:00Z",
        "generatorURL": "",
        "fingerprint": f"{alert.key.cluster}/{alert.key.rule}/{alert.key.subject}",
    }


# --- kinds of receivers; each runs in a thread -------------------------------------------------------------


def send_webhook(values: Mapping[str, Any], message: Message, clusters: Mapping[str, ClientOptions]) -> None:
    """POST the message. Redirects are not followed. Raises SendError."""
    url: str = values["url"]
    headers = {"Content-Type": "application/json", "User-Agent": "barnabas-monitor"}
    if values["token"]:
        headers["Authorization"] = f"Bearer {values['token']}"
    data = json.dumps(body(message)).encode()
    try:
        status = ask(Address(url), "POST", "", data, headers, timeout_s=TIMEOUT_S, bytes_max=0).status
    except (NoAnswer, ValueError) as error:
        raise SendError(f"{without_login(url)}: {error or type(error).__name__}") from None
    if not 200 <= status < 300:
        raise SendError(f"{without_login(url)} answers with status {status}")


def send_mail(values: Mapping[str, Any], message: Message, clusters: Mapping[str, ClientOptions]) -> None:
    """Send a mail. Raises SendError."""
    mail = EmailMessage()
    mail["Subject"] = headline(message).replace("\r", " ").replace("\n", " ")[:200]
    mail["From"] = values["from"]
    mail["To"] = ", ".join(values["to"])
    lines = [f"{alert.finding.text} (since {time_text(alert.since_ms)})" for alert in message.alerts]
    hidden = len(lines) - LISTED_MAX
    shown = lines[:LISTED_MAX] + ([f"and {hidden} more"] if hidden > 0 else [])
    rules = ", ".join(sorted({f"{alert.rule.name} ({alert.rule.kind})" for alert in message.alerts}))
    mail.set_content(
        f"{message.status} in cluster {message.cause.cluster}\n\n"
        + "\n".join(shown)
        + f"\n\nRules: {rules}\n"
    )
    host, _, port = values["server"].rpartition(":")
    try:
        host, number = (
            (host, int(port)) if host else (values["server"], 465 if values["tls"] == "tls" else 587)
        )
        make: Callable[..., smtplib.SMTP] = smtplib.SMTP
        more: dict[str, Any] = {}
        if values["tls"] == "tls":
            make, more = smtplib.SMTP_SSL, {"context": ssl.create_default_context()}
        with make(host, number, timeout=TIMEOUT_S, **more) as server:
            if values["tls"] == "starttls":
                server.starttls(context=ssl.create_default_context())
            if values["user"]:
                server.login(values["user"], values["password"] or "")
            server.send_message(mail)
    except (OSError, smtplib.SMTPException, ValueError) as error:
        raise SendError(f"{values['server']}: {error or type(error).__name__}") from None


def send_record(values: Mapping[str, Any], message: Message, clusters: Mapping[str, ClientOptions]) -> None:
    """Append the message to partition 0 of a topic, with the cause as key. Raises SendError."""
    name = values["cluster"] or next(iter(clusters))
    if name not in clusters:
        raise SendError(
            f"topic {values['topic']}: there is no cluster {name}; there are: {', '.join(clusters)}"
        )
    key = f"{message.cause.cluster}/{message.cause.name}".encode()
    value = json.dumps(body(message), ensure_ascii=False).encode("utf-8", "surrogatepass")
    batch = build_batch([Record(0, message.at_ms, key, value)])
    try:
        with BlockingClient(clusters[name]) as client:
            client.produce_raw(values["topic"], 0, batch)
    except ClientError as error:
        raise SendError(f"topic {values['topic']} of cluster {name}: {error}") from None


SENDERS: Final[Mapping[str, Callable[[Mapping[str, Any], Message, Mapping[str, ClientOptions]], None]]] = {
    "webhook": send_webhook,
    "smtp": send_mail,
    "topic": send_record,
}


@dataclass(slots=True)
class Delivery:
    """What became of a receiver's messages. last_error: of the last one; None if it arrived."""

    sent: int = 0
    failed: int = 0
    last_error: str | None = None


class Mailbox:
    """The queue of one receiver. Belongs to one event loop."""

    def __init__(self, receiver: Receiver, clusters: Mapping[str, ClientOptions]) -> None:
        self.receiver = receiver
        self.delivery = Delivery()
        self._clusters = clusters
        self._queue: asyncio.Queue[Message] = asyncio.Queue(QUEUE_MAX)
        self._thread = ThreadPoolExecutor(1, f"alerts to {receiver.name}")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to deliver."""
        self._task = asyncio.create_task(self._run(), name=f"alerts to {self.receiver.name}")

    async def stop(self) -> None:
        """End at once; a thread that hangs in a receiver is left behind."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._thread.shutdown(wait=False, cancel_futures=True)

    def put(self, message: Message) -> None:
        """Deliver this next; it is left out if a hundred others wait."""
        try:
            self._queue.put_nowait(message)
        except asyncio.QueueFull:
            self._failed("too many messages wait for it")

    async def _run(self) -> None:
        while True:
            message = await self._queue.get()
            for left in range(TRIES - 1, -1, -1):
                try:
                    await self._send(message)
                except SendError as error:
                    if left:
                        await asyncio.sleep(PAUSE_S)
                        continue
                    self._failed(str(error))
                else:
                    self.delivery.sent += 1
                    self.delivery.last_error = None
                break

    async def _send(self, message: Message) -> None:
        loop = asyncio.get_running_loop()
        send = SENDERS[self.receiver.kind]
        work = loop.run_in_executor(self._thread, send, self.receiver.values, message, self._clusters)
        try:
            await asyncio.wait_for(work, WHOLE_S)
        except TimeoutError:
            # The thread may hang for as long as its peer likes: the next message gets another one.
            self._thread.shutdown(wait=False)
            self._thread = ThreadPoolExecutor(1, f"alerts to {self.receiver.name}")
            raise SendError(f"it did not take a message within {WHOLE_S:g} s") from None
        except SendError:
            raise
        except Exception as error:
            log.exception("sending an alert failed", extra={"receiver": self.receiver.name})
            raise SendError(f"internal error: {error}") from None

    def _failed(self, reason: str) -> None:
        if self.delivery.last_error is None:
            log.error("an alert was not delivered", extra={"receiver": self.receiver.name, "reason": reason})
        self.delivery.failed += 1
        self.delivery.last_error = reason
