"""A connection to an MQTT broker, with paho: subscribes, keeps what comes, publishes. It connects again by itself."""

from __future__ import annotations

import queue
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from barnabas.connect.errors import ConnectError, OptionError, RetriableError

PORTS: Final[Mapping[str, int]] = {
    "tcp": 1883, "mqtt": 1883, "ssl": 8883, "mqtts": 8883, "tls": 8883, "ws": 80, "wss": 443,
}  # fmt: skip
ENCRYPTED: Final = ("ssl", "mqtts", "tls", "wss")
WAITING_MAX: Final = 50_000
"""Messages that were received and not polled yet; then the broker's connection waits."""
REFUSED: Final = 0x80
PUBLISH_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Address:
    scheme: str
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Login:
    """How brokers are reached. ca, cert, key: files. times are in seconds."""

    addresses: tuple[Address, ...]
    client_id: str
    user: str | None = None
    password: str | None = None
    clean: bool = True
    timeout_s: float = 3.0
    keep_alive_s: int = 60
    ca: str | None = None
    cert: str | None = None
    key: str | None = None


def addresses_of(hosts: Sequence[str], option: str) -> tuple[Address, ...]:
    """The brokers of a list like tcp://mosquitto:1883. Raises OptionError."""
    addresses = []
    for host in hosts:
        parts = urlsplit(host if "://" in host else f"tcp://{host}")
        if parts.scheme not in PORTS or not parts.hostname:
            raise OptionError(f"{option}: {host!r} is not like tcp://host:1883 ({', '.join(PORTS)})", option)
        try:
            port = parts.port or PORTS[parts.scheme]
        except ValueError as error:
            raise OptionError(f"{option}: {host!r}: {error}", option) from None
        addresses.append(Address(parts.scheme, parts.hostname, port, parts.path or "/mqtt"))
    if not addresses:
        raise OptionError(f"{option} is empty: a list of brokers like tcp://host:1883", option)
    return tuple(addresses)


def wrong_filter(filter: str) -> str | None:
    """What is wrong with a subscription's filter, as a sentence that says what to write."""
    plain = filter
    if filter.startswith("$share/"):
        plain = filter.split("/", 2)[2] if filter.count("/") >= 2 else ""
    levels = plain.split("/")
    if not plain or "\0" in plain:
        return f"{filter!r} is not a topic of MQTT"
    for level in levels[:-1]:
        if "#" in level:
            return f"{filter!r}: # stands for all levels that follow, so it must be the last one"
    for level in levels:
        if len(level) > 1 and ("+" in level or "#" in level):
            sign = "+" if "+" in level else "#"
            better = filter.replace(level, level.replace(sign, f"/{sign}/").strip("/"))
            return f"{filter!r}: {sign} stands for a whole level; did you mean {better}?"
    return None


class Link:
    """One client. `messages` has what was received and not taken yet."""

    def __init__(self, login: Login, subscriptions: Sequence[tuple[str, int]] = ()) -> None:
        """subscriptions: filters, each with its quality of service."""
        self.login, self.subscriptions = login, subscriptions
        self.messages: queue.Queue[paho.MQTTMessage] = queue.Queue(WAITING_MAX)
        self.generation = 0
        self._address: Address | None = None
        self._client: paho.Client | None = None
        self._ready = threading.Event()
        self._closing = False
        self._error: Exception | None = None

    def connect(self) -> None:
        """Connects, if it is not yet, to the first broker that answers. Raises RetriableError, ConnectError."""
        if self._error is not None:
            raise self._error
        if self._client is not None:
            if not self._ready.wait(self.login.timeout_s):
                raise RetriableError(f"{self._address} does not answer; it is tried again")
            return
        problems = []
        for address in self.login.addresses:
            self._address, self._error = address, None
            client = self._new_client(address)
            try:
                client.connect(address.host, address.port, self.login.keep_alive_s)
            except (OSError, ValueError) as error:
                problems.append(f"{address}: {error}")
                continue
            self._client = client
            client.loop_start()
            if self._ready.wait(self.login.timeout_s) and self._error is None:
                return
            problems.append(f"{address} does not answer within {self.login.timeout_s:g} s")
            error_now = self._error
            self.close()
            self._closing = False
            if error_now is not None:
                raise error_now
        raise RetriableError("; ".join(problems))

    def _new_client(self, address: Address) -> paho.Client:
        client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=self.login.client_id,
            clean_session=self.login.clean,
            transport="websockets" if address.scheme in ("ws", "wss") else "tcp",
            manual_ack=True,
        )
        client.connect_timeout = self.login.timeout_s
        client.reconnect_delay_set(1, 30)
        if self.login.user is not None:
            client.username_pw_set(self.login.user, self.login.password)
        if address.scheme in ENCRYPTED:
            context = ssl.create_default_context(cafile=self.login.ca)
            if self.login.cert:
                context.load_cert_chain(self.login.cert, self.login.key)
            client.tls_set_context(context)
        if client.transport == "websockets":
            client.ws_set_options(path=address.path)
        client.on_connect, client.on_disconnect = self._on_connect, self._on_disconnect
        client.on_subscribe, client.on_message = self._on_subscribe, self._on_message
        return client

    # --- called by paho's thread ------------------------------------------------------------------------

    def _on_connect(self, client: paho.Client, _: Any, flags: Any, code: Any, properties: Any) -> None:
        if code.is_failure:
            text = f"{self._address} refuses the connection: {code}"
            wrong = any(word in str(code) for word in ("authorized", "password", "identifier", "Protocol"))
            self._error = (
                ConnectError(f"{text}; check user, password and client id") if wrong else RetriableError(text)
            )
            self._ready.set()
            return
        if self.subscriptions:
            client.subscribe(list(self.subscriptions))
        else:
            self._ready.set()

    def _on_subscribe(self, client: paho.Client, _: Any, mid: int, codes: Any, properties: Any) -> None:
        for (filter, _qos), code in zip(self.subscriptions, codes, strict=False):
            if code.value >= REFUSED:
                self._error = ConnectError(
                    f"{self._address} refuses to subscribe {filter!r}: {code}; see its access rules"
                )
        self._ready.set()

    def _on_disconnect(self, client: paho.Client, _: Any, flags: Any, code: Any, properties: Any) -> None:
        self._ready.clear()
        self.generation += 1
        if not self.login.clean:
            # What has not been acknowledged comes again in the next connection.
            kept = []
            while True:
                try:
                    message = self.messages.get_nowait()
                except queue.Empty:
                    break
                if message.qos == 0:
                    kept.append(message)
            for message in kept:
                self.messages.put_nowait(message)

    def _on_message(self, client: paho.Client, _: Any, message: paho.MQTTMessage) -> None:
        while not self._closing:
            try:
                self.messages.put(message, timeout=0.5)
                return
            except queue.Full:
                continue

    # --- called by the task's thread --------------------------------------------------------------------

    def acknowledge(self, message: paho.MQTTMessage, generation: int) -> None:
        """Tells the broker that a message is stored, if it came over the present connection."""
        if self._client is not None and message.qos and generation == self.generation:
            self._client.ack(message.mid, message.qos)

    def publish(self, messages: Sequence[tuple[str, bytes, int, bool]]) -> None:
        """Sends messages (topic, payload, quality of service, retained), and waits until the broker has them, as far as
        their quality of service tells. Raises RetriableError, ValueError for a topic that MQTT does not have."""
        assert self._client is not None
        deadline = time.monotonic() + PUBLISH_S
        sent = [self._client.publish(*message) for message in messages]
        for info in sent:
            try:
                info.wait_for_publish(max(deadline - time.monotonic(), 0.01))
            except (RuntimeError, ValueError) as error:
                raise RetriableError(f"{self._address}: {error}") from error
            if not info.is_published():
                raise RetriableError(f"{self._address} has not acknowledged messages within {PUBLISH_S:g} s")

    def close(self) -> None:
        """Disconnects; a persistent session stays with the broker."""
        self._closing = True
        client, self._client = self._client, None
        if client is not None:
            client.disconnect()
            client.loop_stop()
        self._ready.clear()
