"""Schemas and HTTP: our registry beside Apicurio's on the same broker, the REST proxy, reporting, and decode rates.

    python -m bench.registry [--quick] [--only registry,rest,decode]

Both registries keep their schemas in topics of one Barnabas broker and take turns, round by round. See README.md.
"""

from __future__ import annotations

import argparse
import base64
import io
import itertools
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import psutil  # type: ignore[import-untyped]
import pyarrow as pa

from barnabas.client.blocking import BlockingClient, NewTopic
from barnabas.schemas.framing import Schema, frame
from bench import http_load
from bench.brokers import CACHE, Barnabas, Unavailable, free_port
from bench.report import aligned, machine, markdown
from bench.requests import BenchError

RESULTS = Path(__file__).parent / "results"
APICURIO = "3.0.9"  # the newest for Java 17
MAVEN = "https://repo1.maven.org/maven2/io/apicurio/apicurio-registry-app"
START_S = 180
CONNECTIONS = (1, 15, 50)
SCHEMA_TYPE = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
V2_JSON = {"Content-Type": "application/vnd.kafka.json.v2+json"}
JSON = {"Content-Type": "application/json"}
OURS, THEIRS = "barnabas", f"apicurio {APICURIO}"
NOTE = (
    "Medians over the rounds, taken in turns; a ratio is the median of the rounds' own ratios (more than 1: ours is "
    "better). One broker, both registries on it; the generator is one process of Python (uvloop), which shares the cores."
)
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "user", "type": "long"},
        {"name": "price", "type": "double"},
        {"name": "count", "type": "int"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "paid", "type": "boolean"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "address",
            "type": {
                "type": "record",
                "name": "Address",
                "fields": [{"name": "street", "type": "string"}, {"name": "zip", "type": "string"}],
            },
        },
    ],
}


@dataclass
class Plan:
    """seconds: of one sample."""

    rounds: int = 3
    seconds: float = 4.0
    records: int = 100_000


QUICK = Plan(rounds=2, seconds=1.5, records=20_000)


class Service:
    """A process that answers HTTP on a free port, under a path."""

    path = ""

    def __init__(
        self, name: str, command: list[str], folder: Path, env: dict[str, str] | None = None
    ) -> None:
        self.name = name
        self.command = command
        self.env = env or {}
        self.log = folder / f"{name}.log"
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, probe: str) -> None:
        """Returns once `probe` is answered with 200. Raises BenchError."""
        command = [part.format(port=self.port) for part in self.command]
        env = {**os.environ, **{name: value.format(port=self.port) for name, value in self.env.items()}}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=env)
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                self.ask("GET", probe)
                return
            except OSError:
                time.sleep(0.1)
        raise BenchError(f"{self.name} does not answer: {self.log.read_text(errors='replace')[-800:]}")

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """One answer. Raises OSError."""
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{self.path}{path}", data, headers or SCHEMA_TYPE, method=method
        )
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return json.loads(answer.read() or b"null")

    def rss_mb(self) -> float:
        assert self.process is not None
        return float(psutil.Process(self.process.pid).memory_info().rss) / 1e6

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def ours(name: str, bootstrap: str, folder: Path, *more: str) -> Service:
    """One of our services, in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "barnabas",
        name,
        "start",
        "-b",
        bootstrap,
        "--listen",
        "127.0.0.1:{port}",
    ]
    return Service(name, [*command, *more], folder)


class Apicurio(Service):
    """Apicurio's registry from Maven Central, with its schemas in Kafka and Confluent's API on top."""

    path = "/apis/ccompat/v7"

    def __init__(self, bootstrap: str, folder: Path) -> None:
        settings = {
            "APICURIO_STORAGE_KIND": "kafkasql",
            "APICURIO_KAFKASQL_BOOTSTRAP_SERVERS": bootstrap,
            "QUARKUS_HTTP_PORT": "{port}",
            "QUARKUS_HTTP_HOST": "127.0.0.1",
            "QUARKUS_LOG_LEVEL": "WARN",
        }
        super().__init__("apicurio", ["java", "-jar", str(self.fetched())], folder, settings)

    @staticmethod
    def fetched() -> Path:
        """The program, fetched once. Raises Unavailable."""
        folder = CACHE / f"apicurio-{APICURIO}"
        program = folder / f"apicurio-registry-app-{APICURIO}-runner.jar"
        if not program.exists():
            archive = CACHE / f"apicurio-registry-app-{APICURIO}-all.tar.gz"
            try:
                if not archive.exists():
                    urllib.request.urlretrieve(f"{MAVEN}/{APICURIO}/{archive.name}", archive)
                with tarfile.open(archive) as tar:
                    tar.extractall(folder, filter="data")
            except (OSError, tarfile.TarError) as error:
                raise Unavailable(f"Apicurio's registry cannot be had: {error}") from error
        return program


@dataclass
class Samples:
    """rows[row][subject]: a value per round."""

    rows: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, row: str, subject: str, value: float) -> None:
        self.rows.setdefault(row, {}).setdefault(subject, []).append(value)

    def note(self, row: str, subject: str, load: http_load.Result) -> None:
        self.add(f"{row}, requests/s", subject, load.per_second)
        self.add(f"{row}, p50 ms", subject, load.percentile(50))
        self.add(f"{row}, p99 ms", subject, load.percentile(99))

    def table(self, first: str, second: str) -> list[list[str]]:
        table_rows = [["", first, second, f"x {second}"]]
        for row, by in self.rows.items():
            if first in by:
                turned = row.endswith((" ms", " MB"))
                pairs = list(zip(by[first], by.get(second, ()), strict=False))
                ratios = [b / a if turned else a / b for a, b in pairs if a and b]
                cells = [shown(statistics.median(by[s])) if s in by else "-" for s in (first, second)]
                table_rows.append([row, *cells, f"{statistics.median(ratios):.2f}" if ratios else "-"])
        return table_rows


def shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def schema(number: int, word: str = "Order") -> str:
    """One of many, all different."""
    return json.dumps({**ORDER, "name": f"{word}{number}"})


class Registries:
    """Both registries; what is asked of them."""

    def __init__(self, services: dict[str, Service], plan: Plan, samples: Samples) -> None:
        self.services, self.plan, self.samples = services, plan, samples
        self.numbers = itertools.count()
        self.known: dict[str, list[int]] = {}

    def post(self, service: Service, path: str, text: str) -> bytes:
        body = json.dumps({"schema": text}).encode()
        return http_load.request("POST", service.path + path, body, SCHEMA_TYPE)

    def prepare(self) -> None:
        for name, service in self.services.items():
            ids = []
            for number in range(100):
                answer = service.ask(
                    "POST", f"/subjects/known-{number}/versions", {"schema": schema(number, "Known")}
                )
                ids.append(int(answer["id"]))
            self.known[name] = ids
            for job in (self.register, self.register_again, self.look_up):  # warm
                http_load.run(service.port, 4, self.plan.seconds, job(name, service))

    def register(self, name: str, service: Service) -> Callable[[], bytes]:
        return lambda: self.post(service, f"/subjects/s-{(n := next(self.numbers))}/versions", schema(n))

    def register_again(self, name: str, service: Service) -> Callable[[], bytes]:
        turns = itertools.cycle(
            [self.post(service, f"/subjects/known-{n}/versions", schema(n, "Known")) for n in range(100)]
        )
        return turns.__next__

    def look_up(self, name: str, service: Service) -> Callable[[], bytes]:
        paths = [f"{service.path}/schemas/ids/{number}" for number in self.known[name]]
        return itertools.cycle([http_load.request("GET", path) for path in paths]).__next__

    def round(self, number: int) -> None:
        turn = list(self.services.items())
        for connections in CONNECTIONS:
            for row, job in (
                ("register a new schema", self.register),
                ("register a known schema", self.register_again),
                ("look up by id", self.look_up),
            ):
                for name, service in turn if number % 2 == 0 else turn[::-1]:
                    load = http_load.run(service.port, connections, self.plan.seconds, job(name, service))
                    self.samples.note(f"{row}, {connections} conn.", name, load)
        for name, service in turn:
            self.samples.add("memory of the registry, MB", name, service.rss_mb())


def registries(bootstrap: str, folder: Path, plan: Plan, samples: Samples) -> str:
    """Runs both; why the other one is missing, or an empty text."""
    services: dict[str, Service] = {OURS: ours("registry", bootstrap, folder)}
    why = ""
    try:
        services[THEIRS] = Apicurio(bootstrap, folder)
    except Unavailable as error:
        why = str(error)
    try:
        for service in services.values():
            service.start("/subjects")
        comparison = Registries(services, plan, samples)
        comparison.prepare()
        for number in range(plan.rounds):
            comparison.round(number)
            print(aligned(samples.table(OURS, THEIRS)), flush=True)
    finally:
        for service in services.values():
            service.stop()
    return why


def http_services(bootstrap: str, folder: Path, plan: Plan, samples: Samples) -> None:
    """The REST proxy and reporting: records by the second."""
    rest, reporting = ours("rest", bootstrap, folder), ours("reporting", bootstrap, folder)
    with BlockingClient(bootstrap) as client:
        client.create_topics([NewTopic("http", 4)])
    value = base64.b64encode(b"x" * 75).decode()
    try:
        for service in (rest, reporting):
            service.start("/ready")
        headers = {**JSON, "X-TC-Action": "CreateAccessPoint"}
        point = reporting.ask("POST", "/", {"Topic": "http"}, headers)["Response"]["DataHubId"]
        send = {**JSON, "X-TC-Action": "SendMessage"}
        jobs = []
        for count in (1, 100):
            body = json.dumps({"records": [{"value": {"name": value}}] * count}).encode()
            jobs.append(
                (f"REST produce of {count}", rest, http_load.request("POST", "/topics/http", body, V2_JSON))
            )
            body = json.dumps({"DataHubId": point, "Message": [{"Body": value}] * count}).encode()
            jobs.append((f"SendMessage of {count}", reporting, http_load.request("POST", "/", body, send)))
        for _ in range(plan.rounds):
            for row, service, sent in jobs:
                for connections in CONNECTIONS:
                    load = http_load.run(service.port, connections, plan.seconds, lambda sent=sent: sent)
                    samples.note(f"{row}, {connections} conn.", OURS, load)
            for service in (rest, reporting):
                samples.add(f"memory of {service.name}, MB", OURS, service.rss_mb())
    finally:
        rest.stop()
        reporting.stop()


# --- decode rates -----------------------------------------------------------------------------------------


class Held:
    """A registry that holds one schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def by_id(self, schema_id: int) -> Schema:
        return self.schema


def rows(count: int) -> Iterator[dict[str, Any]]:
    for i in range(count):
        yield {
            "id": f"order-{i}", "user": i * 1000, "price": i * 1.5, "count": i % 100, "note": None if i % 3 else "gift",
            "paid": i % 2 == 0, "at": 1_700_000_000_000 + i, "address": {"street": f"Main street {i}", "zip": "12345"},
        }  # fmt: skip


def decode_rates(plan: Plan, samples: Samples) -> None:
    """A batch at a time into Arrow columns, beside one record at a time by confluent-kafka's Avro (de)serializer."""
    import confluent_kafka.schema_registry as registry
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    from barnabas.pipelines.formats.decoding import Decoding
    from barnabas.pipelines.formats.encoding import Encoding

    text = json.dumps(ORDER)
    client = registry.SchemaRegistryClient.new_client({"url": "mock://"})
    number = client.register_schema("t-value", registry.Schema(text, "AVRO"))
    registered = Schema(number, "AVRO", text)
    context = SerializationContext("t", MessageField.VALUE)
    read, write = AvroDeserializer(client), AvroSerializer(client, text)
    parsed = fastavro.parse_schema(json.loads(text))
    records = []
    for row in rows(plan.records):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, row)
        records.append(frame(number, out.getvalue()))
    column = pa.array(records, pa.binary())
    decoding, encoding = Decoding(Held(registered), registered), Encoding(registered)  # type: ignore[arg-type]
    columns = decoding.decode(column).field("v")
    values = [read(record, context) for record in records[:1_000]]
    jobs: list[tuple[str, str, Callable[[], Any], int]] = [
        ("decode Avro, records/s", OURS, lambda: decoding.decode(column), len(records)),
        (
            "decode Avro, records/s",
            "one by one",
            lambda: [read(r, context) for r in records[:10_000]],
            10_000,
        ),
        ("encode Avro, records/s", OURS, lambda: encoding.encode(columns), len(records)),
        ("encode Avro, records/s", "one by one", lambda: [write(v, context) for v in values], len(values)),
    ]
    for _ in range(plan.rounds):
        for row, subject, job, count in jobs:
            begun = time.perf_counter()
            job()
            samples.add(row, subject, count / (time.perf_counter() - begun))


def main() -> int:
    """Run what was asked for; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.registry", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter samples, two rounds")
    parser.add_argument(
        "--only", default="registry,rest,decode", metavar="NAMES", help="registry, rest, decode"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="where registry.json and registry.md go")
    options = parser.parse_args()
    plan = QUICK if options.quick else Plan()
    wanted = options.only.split(",")
    both, http, decoded = Samples(), Samples(), Samples()
    why = ""
    with tempfile.TemporaryDirectory(prefix="bench-registry-") as folder:
        broker = Barnabas(Path(folder))
        broker.start()
        try:
            bootstrap = f"127.0.0.1:{broker.port}"
            if "registry" in wanted:
                why = registries(bootstrap, Path(folder), plan, both)
            if "rest" in wanted:
                http_services(bootstrap, Path(folder), plan, http)
        finally:
            broker.stop()
    if "decode" in wanted:
        decode_rates(plan, decoded)
    tables = [
        table
        for table in (both.table(OURS, THEIRS), http.table(OURS, "-"), decoded.table(OURS, "one by one"))
        if len(table) > 1
    ]
    facts = machine()
    lines = ["# Schemas and HTTP", NOTE, *([f"Not measured: {why}"] if why else []), *map(markdown, tables)]
    lines.append(", ".join(f"{name}: {value}" for name, value in facts.items()))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "registry.md").write_text("\n\n".join(lines) + "\n")
    samples = {"registry": both.rows, "http": http.rows, "decode": decoded.rows}
    (options.out / "registry.json").write_text(
        json.dumps({"machine": facts, "samples": samples}, indent=1) + "\n"
    )
    for table in tables:
        print(f"\n{aligned(table)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
