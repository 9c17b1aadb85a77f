"""`barnabas verify`: a producer and a consumer that say, in a line of JSON each, all that happens to them.

What one says was acknowledged must be what the other says it read: that is how losses and repeats are found
while brokers are stopped and started. The lines are those of Kafka's VerifiableProducer and VerifiableConsumer.
"""

from __future__ import annotations

from typing import Annotated

import typer

from barnabas.cli.connection import connect
from barnabas.cli.errors import EXIT_FAILED, EXIT_NOT_DELIVERED, EXIT_OK
from barnabas.cli.kafka.librdkafka import consumer_defaults
from barnabas.cli.kafka.verifiable_consumer import Run
from barnabas.cli.kafka.verifiable_producer import Report, Shape, run_producer
from barnabas.cli.options import Bootstrap, Properties, Verbose
from barnabas.cli.produce import require_topic
from barnabas.cli.runner import example, new_app

app = new_app("Produce and consume with a line of JSON for all that happens, to find losses and repeats.")

Topic = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]
Count = Annotated[
    int, typer.Option("-n", "--count", metavar="N", help="Records; -1 (default) until it is stopped.")
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
        str | None, typer.Option("--prefix", metavar="TEXT", help="Before each value, with a dot.")
    ] = None,
    keys: Annotated[
        int, typer.Option("--keys", min=0, metavar="N", help="Keys 0 to N-1, over and over; 0: none.")
    ] = 0,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
) -> int:
    """Send 0, 1, 2 ... and tell of each acknowledgement. Exit code 3 when some did not come."""
    producer = connect(bootstrap, properties, verbose).producer({"linger.ms": 0, "acks": acks})
    require_topic(producer, topic)
    report = Report()
    run_producer(producer, topic, count, rate, Shape(prefix, keys, -1), report)
    return EXIT_OK if report.acked == report.sent else EXIT_NOT_DELIVERED


@app.command(epilog=example("barnabas verify consume check -g checkers -n 10000 --records > read.jsonl"))
def consume(
    topic: Topic,
    group: Annotated[
        str, typer.Option("-g", "--group", metavar="GROUP", help="The group to be a member of.")
    ],
    count: Count = -1,
    records: Annotated[bool, typer.Option("--records", help="A line for each record as well.")] = False,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
) -> int:
    """Read as a member of a group and tell of records, commits and what the group gives and takes."""
    settings = consumer_defaults(group) | {"enable.auto.commit": False, "auto.offset.reset": "earliest"}
    run = Run(connect(bootstrap, properties, verbose).consumer(settings), topic, count, records)
    return EXIT_OK if run.run() else EXIT_FAILED
