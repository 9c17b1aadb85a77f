"""`barnabas perf`: how fast a cluster accepts and delivers records, and how long a record takes from send to receive."""

from __future__ import annotations

import random
import uuid
from typing import Annotated, Any

import typer

from barnabas.cli.records.produce import PRODUCER, hasten_producer_id
from barnabas.kafka_tools.measuring.perf import ConsumeRun, Latencies, ProduceRun
from barnabas.kafka_tools.shared.common import ToolError
from barnabas.terminal.connection import connect
from barnabas.terminal.errors import EXIT_NOT_DELIVERED, EXIT_OK, CliError
from barnabas.terminal.options import AsJson, Bootstrap, Properties, Verbose
from barnabas.terminal.output import print_json, size_text, summarize
from barnabas.terminal.runner import example, new_app
from barnabas.terminal.topics import require_topic

app = new_app("Measure producing, consuming, and from send to receive.")

Topic = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]
Size = Annotated[int, typer.Option("-s", "--size", min=1, metavar="BYTES", help="Bytes of a record.")]


@app.command(
    epilog=example("barnabas perf produce bench -n 1000000 -s 1000", "barnabas perf produce bench -r 1000")
)
def produce(
    topic: Topic,
    count: Annotated[
        int, typer.Option("-c", "-n", "--count", min=1, metavar="N", help="Records to send.")
    ] = 1_000_000,
    size: Size = 100,
    rate: Annotated[
        float, typer.Option("-r", "--rate", metavar="N", help="Records a second; 0: as many as possible.")
    ] = 0.0,
    codec: Annotated[
        str, typer.Option("-z", "--compress", metavar="CODEC", help="none, gzip, snappy, lz4 or zstd.")
    ] = "none",
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Send records and report the rate and the latency from send to acknowledgement."""
    settings: dict[str, Any] = {**PRODUCER, "delivery.report.only.error": False, "compression.type": codec}
    producer = connect(bootstrap, properties, verbose).producer(settings)
    require_topic(producer, topic)
    for _ in range(3):  # get the producer id before the measurement begins
        producer.poll(0.03)
        hasten_producer_id(producer, topic)
    payloads = [random.Random(i).randbytes(size) for i in range(16)]
    run = ProduceRun(producer, topic, payloads, count, rate)

    def report(window: Latencies, seconds: float) -> None:
        summarize(f"{window.count / seconds:,.0f} records/s, {window.average_ms:.1f} ms on average")

    seconds = run.run(report)
    result = {
        "records": run.latencies.count,
        "failed": run.failed,
        "bytes": run.bytes,
        "seconds": round(seconds, 3),
    }
    show(result, run.latencies, json)
    if run.failed:
        raise CliError(f"{run.failed:,} records not delivered", EXIT_NOT_DELIVERED)
    return EXIT_OK


@app.command(epilog=example("barnabas perf consume bench -n 1000000"))
def consume(
    topic: Topic,
    count: Annotated[
        int, typer.Option("-c", "-n", "--count", min=1, metavar="N", help="Records to read.")
    ] = 1_000_000,
    timeout: Annotated[
        float,
        typer.Option("--timeout", metavar="SECONDS", help="Stop when no record has arrived for so long."),
    ] = 5.0,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Read records from the beginning and report the rate."""
    from barnabas.cli.records.consume import CONSUMER, partitions_of

    settings = {
        **CONSUMER,
        "group.id": f"perf-{uuid.uuid4().hex[:8]}",
        "auto.offset.reset": "earliest",
        "enable.partition.eof": False,
    }
    consumer = connect(bootstrap, properties, verbose).consumer(settings)
    partitions_of(consumer, [topic], [])  # which says so if there is no such topic
    run = ConsumeRun(consumer, topic, count, timeout)
    joining, fetching = run.run()
    consumer.close()
    result = {
        "records": run.messages,
        "bytes": run.bytes,
        "seconds": round(fetching, 3),
        "join_seconds": round(joining, 3),
    }
    show(result, None, json)
    return EXIT_OK


@app.command(epilog=example("barnabas perf e2e bench -n 1000"))
def e2e(
    topic: Topic,
    count: Annotated[
        int, typer.Option("-c", "-n", "--count", min=1, metavar="N", help="Records, one by one.")
    ] = 1000,
    size: Size = 100,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Send one record after the other and report how long each takes until it is read."""
    from barnabas.kafka_tools.measuring.e2e_latency import measure
    from barnabas.kafka_tools.shared.librdkafka import consumer_defaults

    connection = connect(bootstrap, properties, verbose)
    producer = connection.producer({"linger.ms": 0})
    require_topic(producer, topic)
    consumer = connection.consumer(consumer_defaults(f"perf-{uuid.uuid4().hex[:8]}"))
    try:
        latencies = measure(producer, consumer, topic, count, size, report=False)
    except ToolError as error:
        raise CliError(str(error)) from None
    finally:
        consumer.close()
    show({"records": count}, latencies, json)
    return EXIT_OK


def show(result: dict[str, Any], latencies: Latencies | None, json: bool) -> None:
    """Print a measurement."""
    if "seconds" in result:
        seconds = max(result["seconds"], 1e-9)
        result["records_per_second"] = round(result["records"] / seconds)
    if latencies is not None:
        p50, p95, p99, p999 = (round(value, 3) for value in latencies.percentiles((0.5, 0.95, 0.99, 0.999)))
        result["latency_ms"] = {
            "average": round(latencies.average_ms, 3), "p50": p50, "p95": p95, "p99": p99, "p99.9": p999,
            "max": round(latencies.max_ms, 3),
        }  # fmt: skip
    if json:
        print_json(result)
        return
    if "seconds" in result:
        rate = size_text(result["bytes"] / seconds)
        print(
            f"{result['records']:,} records in {seconds:.2f} s: {result['records_per_second']:,} records/s, {rate}/s"
        )
    if latencies is not None:
        print(
            "latency in ms: "
            + ", ".join(f"{name} {value:,.2f}" for name, value in result["latency_ms"].items())
        )
