"""What rules need beside a look at a cluster: certificates of addresses, and the states of pipelines. Runs in threads."""

from __future__ import annotations

import datetime
import json
import socket
import ssl
import time
from typing import Final

from barnabas.http_client import Address, NoAnswer, ask, without_login
from barnabas.monitor.alerts.conditions import Certificate

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
        found = json.loads(answer.body)
        return [
            (str(row["name"]), str(row["state"]).lower(), str(row.get("error") or "its log says why"))
            for row in (found["pipelines"] if isinstance(found, dict) else found)
        ]
    except (NoAnswer, ValueError, KeyError, TypeError) as error:
        return [("*", "", f"{without_login(server)}: {error or type(error).__name__}")]


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
