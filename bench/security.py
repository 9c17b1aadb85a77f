"""What security costs: access rules, TLS and logins, beside Apache Kafka's.

    python -m bench.security [--quick] [--only rules,tls,connections]

The rules are measured with and without on two brokers of ours; TLS and logins on one broker each of ours and Kafka's. All of
them run at a time and take turns, round by round, under the same load. See README.md.
"""

from __future__ import annotations

import argparse
import base64
import functools
import hashlib
import hmac
import json
import os
import socket
import ssl
import struct
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from barnabas.security.authority import Authority
from bench import load
from bench.brokers import ApacheKafka, Barnabas, free_port, running
from bench.report import aligned, machine, markdown
from bench.requests import BenchError, Wire, filled_batch, frame, produce_request, text
from bench.transactions import Samples
from bench.workloads import Pace, Workload, measure, touch_memory

RESULTS = Path(__file__).parent / "results"
RULES = 10_000
CLIENTS = 2
USER, PASSWORD = "alice", "a password of the bench"
SCRAM = "SCRAM-SHA-256"
RECORD_BYTES, BATCH_BYTES = 1024, 64 * 1024
CONSUMED = 600
"""Batches that are read in one sample."""
TOPIC = "ruled"
PAIRS = (
    ("rules", "with 10,000 rules", "without"),
    ("tls", "barnabas", "kafka"),
    ("connections", "barnabas", "kafka"),
)
NOTE = (
    "Medians over the rounds, in which all take turns; a ratio is the median of the rounds' own ratios (more than 1: the "
    "first is better). TLS 1.3 with a certificate of P-256; every connection is a new one, without a resumed session."
)


class Secured:
    """What both kinds of broker have here: three listeners, a certificate, and one user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tls_port, self.sasl_port = free_port(), free_port()
        authority = Authority.new("Bench CA")
        key, certificate = authority.issue("localhost", ["localhost", "127.0.0.1"])
        self.ca, self.store = folder / "ca.pem", folder / "store.pem"
        self.ca.write_bytes(authority.pem)
        self.store.write_bytes(key + certificate)

    def listeners(self, port: int) -> str:
        return f"PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{self.tls_port},SASL_PLAINTEXT://127.0.0.1:{self.sasl_port}"

    def options(self) -> dict[str, str]:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.store),
            "sasl.enabled.mechanisms": SCRAM,
            f"listener.name.sasl_plaintext.{SCRAM.lower()}.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
        }


class SecuredBarnabas(Barnabas):
    """Ours, with TLS and logins."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.secured = Secured(_folder(directory / "ours"))

    def command(self) -> list[str]:
        options = {"listeners": self.secured.listeners(self.port), **self.secured.options()}
        return with_options(super().command()[:-2], options)


class SecuredKafka(ApacheKafka):
    """Apache Kafka with the same."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.secured = Secured(_folder(directory / "theirs"))

    def _properties(self) -> str:
        ours = self.secured.listeners(self.port)
        rows = dict(line.split("=", 1) for line in super()._properties().splitlines() if line)
        controller = rows["listeners"].rpartition(",")[2]
        rows |= {
            "listeners": f"{ours},{controller}",
            "advertised.listeners": ours,
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
            ),
            **self.secured.options(),
        }
        return "".join(f"{name}={value}\n" for name, value in rows.items())


class RuledBarnabas(Barnabas):
    """Ours with an authorizer. is_setting_up: whether everybody may do everything, until the rules are there."""

    name = "barnabas-ruled"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.is_setting_up = True

    def command(self) -> list[str]:
        users = "User:ANONYMOUS" if self.is_setting_up else "User:nobody"
        return with_options(
            super().command(),
            {
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": users,
            },
        )


def with_options(command: list[str], options: dict[str, str]) -> list[str]:
    return [*command, *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


# --- access rules ---------------------------------------------------------------------------------------------------


def add_rules(port: int) -> None:
    """10,000 of them: of single topics, of prefixes of all lengths, of other users of the very topic; one that allows."""
    from confluent_kafka.admin import (  # type: ignore[import-untyped]
        AclBinding,
        AclOperation,
        AclPermissionType,
        AdminClient,
        ResourcePatternType,
        ResourceType,
    )

    def rule(name: str, user: str, *, prefix: bool = False, operation: Any = AclOperation.WRITE) -> Any:
        pattern = ResourcePatternType.PREFIXED if prefix else ResourcePatternType.LITERAL
        return AclBinding(
            ResourceType.TOPIC, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW
        )

    rules = [rule(TOPIC, "ANONYMOUS", operation=AclOperation.ALL)]
    rules += [rule(TOPIC, f"user-{number}") for number in range(100)]
    rules += [rule("p" * (number % 40) + f"-{number}", "somebody", prefix=True) for number in range(4_000)]
    rules += [rule(f"topic-{number}", f"user-{number % 500}") for number in range(RULES - len(rules))]
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
    for begin in range(0, len(rules), 500):
        for future in admin.create_acls(rules[begin : begin + 500], request_timeout=120).values():
            future.result(120)


def measure_rules(rounds: int, pace: Pace, folder: Path) -> Samples:
    samples = Samples()
    ruled, free = RuledBarnabas(folder), Barnabas(folder)
    running = {"with 10,000 rules": ruled, "without": free}
    try:
        for broker in running.values():
            broker.start()
            with Wire(broker.port) as wire:
                wire.create_topic(TOPIC, 10)
        add_rules(ruled.port)
        ruled.is_setting_up = False
        ruled.restart(kill=False)
        for number in range(rounds):
            turn = list(running.items())[:: 1 if number % 2 == 0 else -1]
            for in_flight in (1, 4):
                workload = Workload("requests", 100, 1, 50, in_flight, 10)
                for name, broker in turn:
                    touch_memory(folder, pace.touch_bytes // 4)
                    measured = measure(workload, broker.port, TOPIC, pace, broker)
                    samples.add(f"{workload.name}, requests/s", name, measured["value"])
                    # The warm-up costs as well and is not counted among the requests.
                    share = pace.seconds / (pace.seconds + pace.warmup_seconds)
                    cost_ms = measured["broker_cpu_seconds"] * share / measured["requests"] * 1e6
                    samples.add(
                        f"the same, CPU of the broker for 1,000 with {in_flight} in flight, ms", name, cost_ms
                    )
    finally:
        for broker in running.values():
            broker.stop()
    return samples


# --- TLS ------------------------------------------------------------------------------------------------------------


def produced(broker: Any, topic: str, pace: Pace, port: int, **options: str) -> float:
    """MB/s of one producer. Of librdkafka, whose threads have one of the two cores."""
    touch_memory(broker.directory, pace.touch_bytes // 2)
    report = load.run_librdkafka(
        port, "produce", topic, str(RECORD_BYTES), str(pace.warmup_seconds), str(pace.seconds),
        batch_size=str(BATCH_BYTES), linger_ms="5", acks="1", queue_buffering_max_kbytes="65536", **options,
    )  # fmt: skip
    return float(report["bytes"]) / float(report["seconds"]) / 1e6


def consumed(topic: str, records: int, port: int, **options: str) -> float:
    """MB/s of one consumer that reads so many records."""
    report = load.run_librdkafka(port, "consume", topic, str(records), fetch_queue_backoff_ms="5", **options)
    return float(report["bytes"]) / float(report["seconds"]) / 1e6


def measure_tls(brokers: list[Any], rounds: int, pace: Pace) -> Samples:
    samples = Samples()
    batch, batch_records = filled_batch(RECORD_BYTES, BATCH_BYTES)
    batches = CONSUMED * (1 + int(pace.seconds))
    for number in range(rounds):
        for broker in brokers if number % 2 == 0 else brokers[::-1]:
            ways: dict[str, tuple[int, dict[str, str]]] = {
                "plain text": (broker.port, {}),
                "TLS": (
                    broker.secured.tls_port,
                    {"security_protocol": "ssl", "ssl_ca_location": str(broker.secured.ca)},
                ),
            }
            for way, (port, options) in ways.items():
                topic = f"tls-{number}-{way.replace(' ', '-')}"
                with Wire(broker.port) as wire:
                    wire.create_topic(topic, 1)
                    samples.add(
                        f"produce, {way}, MB/s", broker.name, produced(broker, topic, pace, port, **options)
                    )
                    wire.delete_topic(topic)
                    wire.create_topic(f"{topic}-read", 1)
                    load.run(
                        broker.port, {"connections": 1, "in_flight": 4, "requests": batches},
                        produce=[produce_request(f"{topic}-read", 0, batch)],
                    )  # fmt: skip
                    speed = consumed(f"{topic}-read", batches * batch_records, port, **options)
                    samples.add(f"consume, {way}, MB/s", broker.name, speed)
                    wire.delete_topic(f"{topic}-read")
    return samples


# --- connections ----------------------------------------------------------------------------------------------------


def add_user(port: int) -> None:
    from confluent_kafka.admin import (
        AdminClient,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(60)


def ask(sock: socket.socket, key: int, version: int, body: bytes) -> bytes:
    sock.sendall(frame(key, version, body))
    (size,) = struct.unpack(">i", _exactly(sock, 4))
    return _exactly(sock, size)[4:]


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = sock.recv(count - len(data))
        if not piece:
            raise BenchError("the broker closed a connection")
        data += piece
    return data


def by_plain_text(sock: socket.socket, ca: str) -> None:
    ask(sock, 18, 0, b"")


@functools.cache
def _context(ca: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca)


def by_tls(sock: socket.socket, ca: str) -> None:
    with _context(ca).wrap_socket(sock, server_hostname="127.0.0.1") as wrapped:
        ask(wrapped, 18, 0, b"")


@functools.cache
def _salted(salt: bytes, iterations: int) -> bytes:
    """Kept, as real clients could: what is measured is the broker's share."""
    return hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), salt, iterations)


def by_scram(sock: socket.socket, ca: str) -> None:
    ask(sock, 17, 1, text(SCRAM))
    nonce = base64.b64encode(os.urandom(18)).decode()
    first = f"n={USER},r={nonce}"
    server_first = _token(ask(sock, 36, 0, _sized(f"n,,{first}".encode())))
    fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
    salted = _salted(base64.b64decode(fields["s"]), int(fields["i"]))
    key = hmac.digest(salted, b"Client Key", "sha256")
    final = f"c=biws,r={fields['r']}"
    message = f"{first},{server_first.decode()},{final}".encode()
    signature = hmac.digest(hashlib.sha256(key).digest(), message, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    _token(ask(sock, 36, 0, _sized(f"{final},p={proof}".encode())))
    ask(sock, 18, 0, b"")


def _sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _token(answer: bytes) -> bytes:
    error, length = struct.unpack_from(">hh", answer)
    if error:
        raise BenchError(f"a login is refused: {error} {answer[4:]!r}")
    at = 4 + max(length, 0)
    return answer[at + 4 :]


WAYS: dict[str, Callable[[socket.socket, str], None]] = {
    "plain text": by_plain_text,
    "TLS": by_tls,
    "SCRAM": by_scram,
}


def connect_for(seconds: float, port: int, way: str, ca: str) -> int:
    """How many connections one process makes, each with one request behind it."""
    count, end_s = 0, time.monotonic() + seconds
    while time.monotonic() < end_s:
        with socket.create_connection(("127.0.0.1", port), 20) as sock:
            WAYS[way](sock, ca)
        count += 1
    return count


def measure_connections(brokers: list[Any], rounds: int, pace: Pace) -> Samples:
    samples = Samples()
    for broker in brokers:
        add_user(broker.port)
    with ProcessPoolExecutor(CLIENTS) as clients:
        for number in range(rounds):
            for broker in brokers if number % 2 == 0 else brokers[::-1]:
                secured = broker.secured
                ports = {
                    "plain text": broker.port,
                    "TLS": secured.tls_port,
                    "SCRAM": secured.sasl_port,
                }
                for way, port in ports.items():
                    jobs = [
                        clients.submit(connect_for, pace.seconds, port, way, str(secured.ca))
                        for _ in range(CLIENTS)
                    ]
                    count = sum(job.result() for job in jobs)
                    samples.add(f"new connections, {way}, 1/s", broker.name, count / pace.seconds)
    return samples


# --- all of it ------------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--only", default="rules,tls,connections", help="of: rules, tls, connections")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rounds = 2 if options.quick else 5
    pace = Pace(0.3, 1.0, 1.0) if options.quick else Pace(0.5, 2.0, 2.0)
    wanted = options.only.split(",")
    file = options.out / "security.json"
    kept: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        if "rules" in wanted:
            kept["rules"] = measure_rules(rounds, pace, folder).rows
        if {"tls", "connections"} & set(wanted):
            with running((SecuredBarnabas, SecuredKafka), folder) as brokers:
                if "connections" in wanted:
                    kept["connections"] = measure_connections(brokers, rounds, pace).rows
                if "tls" in wanted:
                    kept["tls"] = measure_tls(brokers, rounds, pace).rows
    kept["machine"] = machine()
    options.out.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(kept, indent=1) + "\n")
    page = ["# Security", "", NOTE]
    for part, first, second in PAIRS:
        if part in kept:
            table = Samples(kept[part]).table(first, second)
            print(aligned(table), end="\n\n")
            page += ["", markdown(table).strip()]
    page += ["", ", ".join(f"{name}: {value}" for name, value in kept["machine"].items())]
    (options.out / "security.md").write_text("\n".join(page) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
