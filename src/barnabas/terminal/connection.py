"""How a command reaches its cluster: addresses, librdkafka's properties, errors in plain words."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from barnabas.client import oidc
from barnabas.client.connection import BrokerConnection as Peer
from barnabas.client.errors import BrokerError, BrokerUnavailable, ClientError, UnsupportedByBroker
from barnabas.client.options import ClientOptions, TlsOptions, jaas_values
from barnabas.client.tls import for_librdkafka
from barnabas.terminal import profiles
from barnabas.terminal.errors import CliError, UsageError
from barnabas.terminal.output import MANNER, note
from barnabas.terminal.probe import NotKafka, require_kafka
from barnabas.terminal.properties import parse_pairs, require_known

DEFAULT_BOOTSTRAP: Final = "localhost:9092"
DEFAULT_PORT: Final = 9092
PORT_MAX: Final = 65535
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
WHERE_FROM: Final = "-b, BARNABAS_BOOTSTRAP or the profile"
CONNECT_TIMEOUT_SECONDS: Final = 5.0
REQUEST_TIMEOUT_SECONDS: Final = 30.0
BATCH_BYTES: Final = 1_000_000
RECORD_BYTES_MAX: Final = 64 << 20
"""Larger records are refused here: the broker would close the connection (socket.request.max.bytes)."""

# Below librdkafka's error level (3): what it would print arrives as an exception or callback too.
QUIET_LOG_LEVEL: Final = 2


@dataclass(slots=True)
class ClusterAddress:
    """The cluster of one command: where it is and which librdkafka properties lead to it."""

    bootstrap: str
    properties: dict[str, str] = field(default_factory=dict)
    verbose: bool = False
    last_error: str = ""
    refusal: KafkaError | None = None
    """Why the broker, or we, refused the login or the TLS handshake."""
    probed: bool = False
    """Whether the address was found to speak Kafka."""
    accepted: bool = False
    """Whether the broker accepted the login or certificate of a client of this command."""

    def config(self, defaults: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """librdkafka's configuration: `defaults`, then what the user set with -X."""
        config: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "client.id": "barnabas",
            "error_cb": self._on_error,
        }
        if not self.verbose:
            config["log_level"] = QUIET_LOG_LEVEL
        config.update(defaults or {})
        config.update(self._translated())
        strategy = "partition.assignment.strategy"
        if strategy in config:
            config[strategy] = ",".join(assignor(name) for name in config[strategy].split(","))
        return config

    def _translated(self) -> dict[str, str]:
        """The user's properties as librdkafka understands them: Java's stores and its JAAS lines too. Raises CliError."""
        try:
            translated = for_librdkafka(self.properties)
            jaas = jaas_values(translated.pop("sasl.jaas.config", ""))
            translated |= oidc.for_librdkafka(translated, jaas)
        except ClientError as error:
            raise CliError(str(error)) from None
        return {f"sasl.{name}": jaas[name] for name in ("username", "password") if name in jaas} | translated

    def _on_error(self, error: KafkaError) -> None:
        self.last_error = error.str()
        if error.code() in REFUSALS:
            self.refusal = error

    def producer(self, defaults: Mapping[str, Any]) -> Any:
        """A Producer on a cluster that answered a connection. Raises CliError when none does."""
        from confluent_kafka import Producer

        self.require_reachable()
        with configuration_errors():
            return self._logged_in(Producer(self.config(defaults)))

    def consumer(self, defaults: Mapping[str, Any]) -> Any:
        """A Consumer, as `producer`."""
        from confluent_kafka import Consumer

        config = self.config(defaults)
        if not config.get("group.id"):  # librdkafka would end the process
            raise UsageError("group.id is '', but must name a group (-X or the profile)")
        self.require_reachable()
        with configuration_errors():
            return self._logged_in(Consumer(config))

    def _logged_in(self, client: Any) -> Any:
        """The client once the broker has accepted its login or certificate. Raises CliError at once if it is refused.

        librdkafka itself tries again until a request times out, and names the time-out only.
        """
        if self.accepted or self.protocol.upper() == "PLAINTEXT":
            return client
        give_up = time.monotonic() + REQUEST_TIMEOUT_SECONDS
        patience_s = LOGIN_LOOK_SECONDS
        while self.refusal is None and time.monotonic() < give_up:
            try:
                client.list_topics(timeout=patience_s)
                self.accepted = True
                return client
            except KafkaException as error:
                if error.args[0].code() not in UNFINISHED:
                    return client  # the command's own request says it better
            client.poll(0)  # which calls `_on_error`
            patience_s *= 2
        if self.refusal is not None:
            raise CliError(f"{self.bootstrap} is out of reach with this login: {explain(self.refusal)}")
        raise CliError(
            f"{self.bootstrap} has not answered in {REQUEST_TIMEOUT_SECONDS:.0f} s; see the broker's log"
        )

    @property
    def protocol(self) -> str:
        """The security protocol, as the user spells it."""
        return self.properties.get("security.protocol", "PLAINTEXT")

    def is_reachable(self) -> bool:
        """Whether a bootstrap address accepts connections now."""
        try:
            self.require_reachable()
        except CliError:
            return False
        return True

    def require_reachable(self) -> None:
        """Raises CliError at once when no bootstrap address accepts a connection.

        librdkafka itself retries silently until a request times out, half a minute later.
        """
        failures = []
        for host, port in self.addresses():
            try:
                with socket.create_connection((host, port), CONNECT_TIMEOUT_SECONDS) as connected:
                    self._look_at(connected, host, port)
                    return
            except NotKafka as error:
                raise CliError(str(error)) from None
            except OSError as error:
                failures.append(f"{host}:{port} ({error.strerror or error})")
        raise CliError(
            f"no broker answers at {', '.join(failures)}; start one with `barnabas start`, "
            f"or name another with {MANNER.address_option} HOST:PORT"
        )

    def _look_at(self, connected: socket.socket, host: str, port: int) -> None:
        """What is known about the first address that accepts connections. Raises NotKafka."""
        if not self.probed:
            hint = require_kafka(connected, f"{host}:{port}", self.protocol)
            self.probed = True
            if hint:
                note(hint)
            if self.protocol.upper().endswith("SSL"):
                self._require_trust(host, port)
        if host == "localhost" and not self.protocol.upper().endswith("SSL"):
            # librdkafka tries one family after the other with a pause between, and on a machine without any network
            # it resolves no name at all: so it gets the address that answered. (TLS compares the name.)
            address = connected.getpeername()[0]
            numeric = f"[{address}]" if ":" in address else address
            self.bootstrap = self.bootstrap.replace(f"localhost:{port}", f"{numeric}:{port}", 1)
            if self.bootstrap == "localhost":
                self.bootstrap = f"{numeric}:{port}"

    def _require_trust(self, host: str, port: int) -> None:
        """Raises CliError at once, naming the file to look at, if one side of a TLS handshake refuses the other.

        librdkafka would try again for as long as a request may take, and knows fewer reasons.
        """
        options = ClientOptions(
            ((host, port),),
            tls=TlsOptions.of(self.properties),
            connect_timeout_s=CONNECT_TIMEOUT_SECONDS,
            request_timeout_s=CONNECT_TIMEOUT_SECONDS,
        )
        try:
            Peer(host, port, options).close()
        except (BrokerUnavailable, UnsupportedByBroker, BrokerError):
            return  # it may come back: librdkafka waits for it
        except ClientError as error:
            raise CliError(str(error)) from None

    def addresses(self) -> Iterator[tuple[str, int]]:
        """The bootstrap addresses as host and port. Raises UsageError for one that is neither."""
        for item in self.bootstrap.split(","):
            protocol, _, address = item.strip().rpartition("://")
            if protocol and protocol.upper() not in PROTOCOLS:
                raise UsageError(f"{item.strip()!r} is not HOST:PORT, but a URL ({WHERE_FROM})")
            host, colon, port = address.rpartition(":")
            if not colon or address.endswith("]"):
                host, port = address, str(DEFAULT_PORT)
            if not host or not port.isdecimal():
                raise UsageError(f"{item.strip()!r} is not HOST:PORT ({WHERE_FROM})")
            if not 1 <= int(port) <= PORT_MAX:
                raise UsageError(f"{item.strip()!r}: the port must be from 1 to {PORT_MAX} ({WHERE_FROM})")
            yield host.strip("[]"), int(port)


LOGIN_LOOK_SECONDS: Final = 0.25
"""How long a client waits before it looks for the first time whether its login was refused."""
REFUSALS: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})
UNFINISHED: Final = frozenset({KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN})

ASSIGNORS: Final = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "cooperative-sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}


def assignor(name: str) -> str:
    """librdkafka's name of an assignor that may be given as a class of the JVM."""
    short = name.strip().rpartition(".")[2]
    return ASSIGNORS.get(short, name.strip())


def connect(
    bootstrap: str | None, properties: Iterable[str] | None = None, verbose: bool = False
) -> ClusterAddress:
    """The connection that a command's -b, -X and -v, the environment and the profile ask for."""
    where, options = target(bootstrap, properties)
    return ClusterAddress(where, options, verbose or MANNER.verbose)


def target(bootstrap: str | None, properties: Iterable[str] | None) -> tuple[str, dict[str, str]]:
    """Bootstrap servers and properties. Raises UsageError."""
    profile = profiles.chosen()
    options = dict(parse_pairs(properties or (), "-X"))
    if profile is not None:
        require_known(profile.properties, f"profile {profile.name}:")
    where = bootstrap or os.environ.get("BARNABAS_BOOTSTRAP")
    if profile is None:
        return where or DEFAULT_BOOTSTRAP, options
    return where or profile.bootstrap or DEFAULT_BOOTSTRAP, {**profile.properties, **options}


@contextlib.contextmanager
def configuration_errors() -> Iterator[None]:
    """Turns librdkafka's refusal of a property into a usage error."""
    try:
        yield
    except KafkaException as error:
        raise UsageError(f"librdkafka refuses the configuration: {error.args[0].str()}") from None


MAY_NOT: Final = "this user lacks a right on the {}; `barnabas acl add` gives it"
HINTS: Final = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: "no such topic; `barnabas topic list` shows what is there",
    KafkaError._UNKNOWN_TOPIC: "no such topic; `barnabas topic list` shows what is there",
    KafkaError._UNKNOWN_PARTITION: "no such partition; `barnabas topic describe TOPIC` shows what is there",
    KafkaError.TOPIC_ALREADY_EXISTS: "the topic is there already; --if-not-exists accepts that",
    KafkaError.GROUP_ID_NOT_FOUND: "no such group; `barnabas group list` shows what is there",
    KafkaError.NON_EMPTY_GROUP: "the group still has members; stop its consumers first",
    KafkaError._ALL_BROKERS_DOWN: "every broker is down; start one with `barnabas start`",
    KafkaError._TRANSPORT: "the connection broke; see the broker's log",
    KafkaError._TIMED_OUT: "no answer in time; see the broker's log",
    KafkaError._MSG_TIMED_OUT: "not acknowledged in time; is the broker up?",
    KafkaError.MSG_SIZE_TOO_LARGE: "the record is larger than the topic's max.message.bytes "
    "or the client's message.max.bytes",
    KafkaError.UNSUPPORTED_VERSION: "the broker is too old for this request",
    KafkaError._UNSUPPORTED_FEATURE: "the broker does not support this",
    KafkaError._AUTHENTICATION: "check sasl.mechanism, sasl.username and sasl.password",
    KafkaError._SSL: "check ssl.truststore.location or ssl.ca.location, and the host's name in the broker's certificate",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: MAY_NOT.format("topic"),
    KafkaError.GROUP_AUTHORIZATION_FAILED: MAY_NOT.format("group"),
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: MAY_NOT.format("transactional id"),
    # librdkafka's producers ask for an id first, which nobody gets who may write to no topic.
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: MAY_NOT.format("cluster, or may write to no topic"),
}


def explain(error: KafkaError) -> str:
    """What happened and what to do, on one line."""
    text: str = error.str().rstrip(".")
    hint = HINTS.get(error.code())
    return f"{text} ({hint})" if hint else text
