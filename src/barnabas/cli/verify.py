"""`barnabas verify`: a producer and a consumer that write a line of JSON for each event; transactions that are
checked by reading them; and a check of every batch on the brokers' disks for damage. The records that the producer
reports as acknowledged must be those that the consumer reports as read: so losses and repeats are found while brokers
are stopped and started. The lines are those of Kafka's VerifiableProducer and VerifiableConsumer.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import Annotated, Any

import typer

from barnabas.kafka_tools.measuring.verifiable_consumer import Run
from barnabas.kafka_tools.measuring.verifiable_producer import RecordTemplate, Report, run_producer
from barnabas.kafka_tools.shared.librdkafka import consumer_defaults
from barnabas.terminal.connection import connect
from barnabas.terminal.errors import EXIT_FAILED, EXIT_NOT_DELIVERED, EXIT_OK
from barnabas.terminal.options import AsJson, AsJsonAlready, Bootstrap, Properties, Verbose
from barnabas.terminal.output import print_json
from barnabas.terminal.progress import Progress
from barnabas.terminal.runner import example, new_app
from barnabas.terminal.topics import require_topic

app = new_app("Find losses, repeats, and damage on the brokers' disks.")

Topic = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]
Count = Annotated[
    int,
    typer.Option("-c", "-n", "--count", metavar="N", help="How many records; -1: until it is stopped."),
]


@app.command(epilog=example("barnabas verify produce check -n 10000 -r 500 > sent.jsonl"))
def produce(
    topic: Topic,
    count: Count = -1,
    rate: Annotated[
        float, typer.Option("-r", "--rate", metavar="N", help="Records a second; -1: as many as possible.")
    ] = -1.0,
    acks: Annotated[str, typer.Option("-a", "--acks", metavar="N", help="0, 1 or all.")] = "all",
    prefix: Annotated[
        str | None, typer.Option("--prefix", metavar="TEXT", help="Text before each value, with a dot.")
    ] = None,
    keys: Annotated[
        int, typer.Option("--keys", min=0, metavar="N", help="Keys 0 to N-1, over and over; 0: none.")
    ] = 0,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJsonAlready = False,
) -> int:
    """Send 0, 1, 2 ... and report each acknowledgement. Exit code 3: some are missing."""
    producer = connect(bootstrap, properties, verbose).producer({"linger.ms": 0, "acks": acks})
    require_topic(producer, topic)
    report = Report()
    with Progress(topic, "record", count if count > 0 else None, shown=not sys.stdout.isatty()) as progress:
        run_producer(
            producer,
            topic,
            count,
            rate,
            RecordTemplate(prefix, keys, -1),
            report,
            lambda: progress.update(report.acked),
        )
    return EXIT_OK if report.acked == report.sent else EXIT_NOT_DELIVERED


@app.command(epilog=example("barnabas verify consume check -g checkers -n 10000 --records > read.jsonl"))
def consume(
    topic: Topic,
    group: Annotated[
        str, typer.Option("-g", "--group", metavar="GROUP", help="The group to be a member of.")
    ],
    count: Count = -1,
    records: Annotated[bool, typer.Option("--records", help="Print a line for each record as well.")] = False,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJsonAlready = False,
) -> int:
    """Read as a member of a group and report records, commits, and the partitions that are assigned and revoked."""
    settings = consumer_defaults(group) | {"enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = connect(bootstrap, properties, verbose).consumer(settings)
    with Progress(topic, "record", count if count > 0 else None, shown=not sys.stdout.isatty()) as progress:
        run = Run(consumer, topic, count, records, watching=progress.update)
        return EXIT_OK if run.run() else EXIT_FAILED


@app.command(
    epilog=example(
        "barnabas verify transactions orders payments --for 60", "barnabas verify transactions check --json"
    )
)
def transactions(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", show_default=False)],
    seconds: Annotated[
        float, typer.Option("--for", min=0.1, metavar="SECONDS", help="How long to write transactions.")
    ] = 30.0,
    writers: Annotated[
        int,
        typer.Option(
            "--writers", min=1, metavar="N", help="How many transactional ids write at the same time."
        ),
    ] = 4,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Seed of the writers' random choices.")
    ] = 0,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Write transactions to topics of yours, read the committed records, and look for errors: records that are lost,
    doubled, out of order or from aborted transactions, transactions that are read in part or without their offsets, a
    last stable offset that goes back, a fenced producer that commits. Stop and start brokers meanwhile. The records
    stay in the topics.
    Exit code 1: a rule is broken."""
    from barnabas.verify.transactions import Run

    run = Run(connect(bootstrap, properties, verbose), topics, writers, seed)
    run.start()
    give_up = time.monotonic() + seconds
    with Progress("verify transactions", "transaction") as progress, suppress(KeyboardInterrupt):
        while (left := give_up - time.monotonic()) > 0 and not run.over.is_set():
            progress.update(len(run.history.txns))
            time.sleep(min(left, 0.2))
    verified = run.finish()
    if json:
        print_json(verified.as_json())
    else:
        for violation in verified.violations:
            print(violation)
        print(verified)
    return EXIT_FAILED if verified.violations else EXIT_OK


@app.command(epilog=example("barnabas verify log", "barnabas verify log orders:0,3 --json"))
def log(
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC[:0,1]", help="Default: all.", show_default=False),
    ] = None,
    is_known: Annotated[
        bool,
        typer.Option(
            "--known",
            help="Read nothing: show the damage that brokers and consumers have met since the start.",
        ),
    ] = False,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    json: AsJson = False,
) -> int:
    """Have the brokers verify every batch on their disks, and name the records that cannot be read. Exit code 1: there
    are some.
    """
    from barnabas.cli.logs.log_move import partitions_of
    from barnabas.terminal.administering import administer
    from barnabas.verify.log import Checked, check, known, line_of

    done = Checked()
    wanted = partitions_of(topics or ())
    with administer(bootstrap, properties) as admin:
        if is_known:
            done.rows = [row for row in known(admin) if _is_wanted(row, wanted)]
        else:
            with Progress("verify log", "partition") as progress:
                for partition, done in check(admin, wanted):
                    progress.update(done.partitions, size_bytes=done.size_bytes, more=partition)
    if json:
        print_json(done.as_json())
    else:
        for row in done.rows:
            print(line_of(row))
        if not is_known:
            print(done)
        elif not done.rows:
            print("no damage was met since the brokers were started")
    return EXIT_FAILED if done.rows else EXIT_OK


def _is_wanted(row: dict[str, Any], wanted: dict[str, set[int] | None]) -> bool:
    chosen = wanted.get(row["topic"], set())
    return not wanted or chosen is None or row["partition"] in chosen
