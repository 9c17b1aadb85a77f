"""What rules need beside a look at a cluster: certificates of addresses, links, states of pipelines. Runs in threads."""

from __future__ import annotations

import datetime
import json
import socket
import ssl
import time
from dataclasses import replace
from typing import Final

from barnabas.admin import Link, MirroredPartition
from barnabas.admin.blocking import Admin
from barnabas.client.errors import UnsupportedByBroker
from barnabas.client.options import ClientOptions
from barnabas.http_client import Address, NoAnswer, ask, without_login
from barnabas.monitor.alerts.conditions import Certificate, Copied

TIMEOUT_S: Final = 10.0
ANSWER_BYTES_MAX: Final = 16 << 20


def certificate_of(address: str) -> Certificate:
    """When the certificate of HOST:PORT ends. It is not verified: an ended one is what is looked for."""
    host, _, port = address.rpartition(":")
    try:
        from cryptography import x509
    except ImportError:
        return Certificate(address, None, "the extra `security` is not installed")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, int(port)), TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            shown = secured.getpeercert(binary_form=True) or b""
        ends = x509.load_der_x509_certificate(shown).not_valid_after_utc
    except (OSError, ValueError) as error:
        return Certificate(address, None, str(error) or type(error).__name__)
    return Certificate(address, (ends - datetime.datetime.now(datetime.UTC)).total_seconds())


def pipelines_of(server: str) -> list[tuple[str, str, str]]:
    """(name, state, reason) of the pipelines that a server runs; (`*`, ``, why) if it does not answer."""
    address = Address(server if "://" in server else f"http://{server}")
    try:
        answer = ask(address, "GET", "/pipelines", timeout_s=TIMEOUT_S, bytes_max=ANSWER_BYTES_MAX)
        if answer.status != 200:
            return [("*", "", f"{without_login(server)} answers with status {answer.status}")]
        document = json.loads(answer.body)
        return [
            (str(row["name"]), str(row["state"]).lower(), str(row.get("error") or "its log says why"))
            for row in (document["pipelines"] if isinstance(document, dict) else document)
        ]
    except (NoAnswer, ValueError, KeyError, TypeError) as error:
        return [("*", "", f"{without_login(server)}: {error or type(error).__name__}")]


def copied_by_links(options: ClientOptions) -> list[Copied]:
    """What the links of a cluster copy into it. Other clusters than Barnabas's have none. Raises ClientError."""
    with Admin(replace(options, deadline_s=TIMEOUT_S)) as admin:
        try:
            links = admin.links.describe()
        except UnsupportedByBroker:
            return []
    return [row for link in links for row in copied_by(link)]


def copied_by(link: Link) -> list[Copied]:
    """What one link copies. Nothing is wrong with one that a user has paused."""
    copied = [Copied(link.name, "*", trouble=link.unreachable)] if link.unreachable else []
    copied += [Copied(link.name, topic, trouble=reason) for topic, reason in link.problems.items()]
    rows: dict[str, list[MirroredPartition]] = {}
    for partition in link.partitions:
        rows.setdefault(partition.topic, []).append(partition)
    for topic, parts in rows.items():
        stopped = next((part.reason or part.state for part in parts if part.state == "stopped"), "")
        lag, waiting_ms = sum(max(part.lag, 0) for part in parts), max(part.lag_ms for part in parts)
        trouble = "" if topic in link.problems else stopped
        copied.append(Copied(link.name, topic, lag, max(waiting_ms, 0) / 1000, trouble))
    return copied


class Now:
    """A value that is asked for again when it is older than age_s. ask runs in a thread, one at a time."""

    def __init__(self, age_s: float) -> None:
        self.age_s = age_s
        self.asked_s = -age_s

    def is_due(self) -> bool:
        """Whether it is time; the next time is counted from now."""
        now_s = time.monotonic()
        if now_s - self.asked_s < self.age_s:
            return False
        self.asked_s = now_s
        return True
