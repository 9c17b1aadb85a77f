"""kafka-console-producer."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaException

from barnabas.kafka_tools.shared.common import ToolError, checked, client_properties, parse, servers
from barnabas.kafka_tools.shared.librdkafka import connection
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Parsed, Tool
from barnabas.terminal.connection import ClusterAddress
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, CliError
from barnabas.terminal.lines import chunks, split
from barnabas.terminal.outbox import Outbox, Stage
from barnabas.terminal.signals import ending

FLUSH_SECONDS: Final = 1.0
OLD_VALUES: Final = ("key-serializer", "value-serializer", "queue-size", "queue-enqueuetimeout-ms")

TOOL: Final = Tool(
    "This tool helps to read data from standard input and publish it to Kafka.",
    (
        *COMMON,
        Opt("topic", "REQUIRED: The topic name to produce messages to.", "String: topic"),
        Opt("sync", "Send each message and wait for it."),
        Opt(
            "compression-codec",
            "none, gzip, snappy, lz4 or zstd; gzip without a value.",
            "String",
            optional=True,
        ),
        Opt("batch-size", "Bytes of a batch.", "Integer: size"),
        Opt("message-send-max-retries", "How often a message is tried again.", "Integer"),
        Opt("retry-backoff-ms", "Pause before trying again.", "Long"),
        Opt("timeout", "How long a batch waits for more, in ms.", "Long: timeout_ms"),
        Opt("request-required-acks", "0, 1 or all.", "String: acks"),
        Opt("request-timeout-ms", "How long to wait for an acknowledgement.", "Integer"),
        Opt("metadata-expiry-ms", "How long metadata is kept.", "Long"),
        Opt("max-block-ms", "How long to wait for room.", "Long"),
        Opt("max-memory-bytes", "Memory for messages that wait.", "Long"),
        Opt("max-partition-memory-bytes", "Bytes of a batch.", "Integer"),
        Opt("socket-buffer-size", "Size of the socket's buffer.", "Integer"),
        Opt(
            "property",
            "Of the reader: parse.key, key.separator, parse.headers, null.marker ...",
            "String: prop",
        ),
        Opt("reader-property", "As --property.", "String: prop"),
        Opt("reader-config", "A file of reader properties.", "String: config file"),
        Opt("line-reader", "Of Java.", "String: reader_class", old=True),
        *(Opt(name, "Of old tools.", "String", old=True) for name in OLD_VALUES),
        *(Opt(name, "Of old tools.", old=True) for name in ("new-producer", "old-producer")),
        Opt("producer-property", "A producer property.", "String: producer_prop"),
        Opt("producer.config", "A file of producer properties.", "String: config file"),
    ),
)


@dataclass(slots=True)
class LineReader:
    """Cuts a line into headers, key and value as Kafka's LineMessageReader does."""

    parse_key: bool = False
    parse_headers: bool = False
    ignore_error: bool = False
    key_separator: bytes = b"\t"
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    null_marker: bytes | None = None
    line_number: int = 0

    @classmethod
    def of(cls, properties: dict[str, str]) -> LineReader:
        """From reader properties."""

        def text(name: str, default: str) -> bytes:
            return properties.get(name, default).replace("\\t", "\t").encode()

        reader = cls(
            properties.get("parse.key", "false").lower() == "true",
            properties.get("parse.headers", "false").lower() == "true",
            properties.get("ignore.error", "false").lower() == "true",
            text("key.separator", "\t"),
            text("headers.delimiter", "\t"),
            text("headers.separator", ","),
            text("headers.key.separator", ":"),
            properties["null.marker"].encode() if "null.marker" in properties else None,
        )
        reader.check()
        return reader

    def check(self) -> None:
        """Raises ToolError for separators that cannot be distinguished, in Kafka's words."""
        separators = {
            "headers.delimiter": self.headers_delimiter,
            "headers.separator": self.headers_separator,
            "headers.key.separator": self.headers_key_separator,
        }
        pairs = [("headers.delimiter", "headers.separator"), ("headers.delimiter", "headers.key.separator"),
                 ("headers.separator", "headers.key.separator")]  # fmt: skip
        for first, second in pairs if self.parse_headers else []:
            if separators[first] == separators[second]:
                raise ToolError(f"{first} and {second} may not be equal")
        if self.null_marker is None:
            return
        for name, separator in {"key.separator": self.key_separator, **separators}.items():
            if separator == self.null_marker:
                raise ToolError(f"null.marker and {name} may not be equal")

    def read(self, line: bytes) -> dict[str, Any]:
        """A line as arguments of produce(). Raises ToolError for a line without a separator."""
        self.line_number += 1
        rest, headers, key = line, None, None
        if self.parse_headers:
            header_text, rest = self.cut(rest, self.headers_delimiter, "headers delimiter")
            headers = (
                None
                if header_text is None or header_text == self.null_marker
                else self.split_headers(header_text)
            )
        if self.parse_key:
            key, rest = self.cut(rest, self.key_separator, "key separator")
        record: dict[str, Any] = {"value": self.or_null(rest), "key": self.or_null(key)}
        if headers:
            record["headers"] = headers
        return record

    def cut(self, line: bytes, separator: bytes, what: str) -> tuple[bytes | None, bytes]:
        """The text before and after the separator. Raises ToolError when there is no separator."""
        before, delimiter, after = line.partition(separator)
        if delimiter:
            return before, after
        if self.ignore_error:
            return None, line
        raise ToolError(
            f"org.apache.kafka.common.KafkaException: No {what} found on line number {self.line_number}: "
            f"'{line.decode(errors='replace')}'"
        )

    def split_headers(self, text: bytes) -> list[tuple[str, bytes | None]]:
        """`a:1,b:2` as headers. Raises ToolError."""
        headers = []
        for item in text.split(self.headers_separator):
            name, separator, value = item.partition(self.headers_key_separator)
            if not separator and not self.ignore_error:
                raise ToolError(
                    "org.apache.kafka.common.KafkaException: No header key separator found in pair "
                    f"'{item.decode(errors='replace')}' on line number {self.line_number}"
                )
            headers.append((name.decode(errors="replace"), self.or_null(value) if separator else None))
        return headers

    def or_null(self, data: bytes | None) -> bytes | None:
        """None for the marker that stands for null."""
        return None if data is None or data == self.null_marker else data


def main(arguments: Sequence[str]) -> int:
    """Send standard input, line by line; the exit code."""
    parsed = parse(TOOL, arguments)
    checked(TOOL, lambda parsed: TOOL.need(parsed, "topic"), parsed)
    files, pairs = ["producer.config", "command-config"], ["producer-property", "command-property"]
    properties = {**settings(parsed), **client_properties(parsed, files, pairs)}
    reader = LineReader.of(client_properties(parsed, ["reader-config"], ["property", "reader-property"]))
    try:
        connected = connection(servers(parsed, properties), properties, producing=True)
        return send(connected, parsed.text("topic"), reader, "sync" in parsed)
    except CliError as error:
        raise ToolError(str(error)) from None


def settings(parsed: Parsed) -> dict[str, str]:
    """Producer properties of the tool's own options."""
    properties = {"client.id": "console-producer", "acks": parsed.text("request-required-acks", "all")}
    names = {
        "message-send-max-retries": "retries",
        "retry-backoff-ms": "retry.backoff.ms",
        "timeout": "linger.ms",
        "request-timeout-ms": "request.timeout.ms",
        "batch-size": "batch.size",
        "max-partition-memory-bytes": "batch.size",
        "metadata-expiry-ms": "metadata.max.age.ms",
    }
    properties |= {
        property_name: parsed.text(name) for name, property_name in names.items() if name in parsed
    }
    if "compression-codec" in parsed:
        properties["compression.type"] = parsed.text("compression-codec") or "gzip"
    return properties


@dataclass(slots=True)
class Sending:
    """One run: reads lines, passes them to librdkafka, and reports each record that is refused."""

    topic: str
    outbox: Outbox = field(init=False)
    failures: int = 0
    stopped: bool = False

    def stop(self) -> None:
        """Read no further; what was read is still delivered."""
        self.stopped = True

    def run(self, reader: LineReader, sync: bool) -> int:
        """Produce every line; the exit code says whether all arrived. Raises ToolError for a line that cannot be cut."""
        prompt = sys.stdin.isatty() and sys.stdout.isatty()
        try:
            with ending(self.stop):
                self.ask(prompt)
                arriving = chunks(sys.stdin.fileno(), lambda: self.stopped, lambda: self.outbox.poll(0))
                for lines in split(arriving, b"\n"):
                    for line in lines:
                        self.produce(self.outbox.stage, reader.read(line.removesuffix(b"\r")))
                        if sync:
                            self.finish()
                    self.outbox.poll(0)
                    if prompt:
                        self.finish()
                        self.ask(prompt)
        except KeyboardInterrupt:
            pass
        finally:
            self.finish()
        return EXIT_FAILED if self.failures else EXIT_OK

    def ask(self, prompt: bool) -> None:
        """Show the prompt for a line."""
        if prompt:
            print(">", end="", flush=True)

    def finish(self) -> None:
        """Wait until everything arrived or failed."""
        while self.outbox.flush(FLUSH_SECONDS):
            pass

    def give_up(self, error: Any, record: dict[str, Any]) -> None:
        """A record did not arrive: one line, and the others go on."""
        self.failures += 1
        size = len(record["value"] or b"")
        print(
            f"Error when sending message to topic {self.topic} with key: {shown_size(record['key'])}, "
            f"value: {size} bytes with error: {error.str()}",
            file=sys.stderr,
        )

    def produce(self, stage: Stage, record: dict[str, Any]) -> None:
        """Pass one record to librdkafka, waiting while the queue is full."""

        def delivered(error: Any, _message: Any) -> None:
            if error is not None:
                self.outbox.failed(error, stage, record)

        while True:
            try:
                stage.producer.produce(self.topic, on_delivery=delivered, **record)
            except BufferError:
                stage.producer.poll(0.1)
            except KafkaException as error:
                self.outbox.failed(error.args[0], stage, record)
                return
            else:
                stage.producer.poll(0)
                return


def shown_size(data: bytes | None) -> str:
    """A key or value as Kafka's tool shows it: by its size."""
    return "null" if data is None else f"{len(data)} bytes"


def send(connected: ClusterAddress, topic: str, reader: LineReader, sync: bool) -> int:
    """Produce standard input; the exit code. Raises CliError, ToolError."""
    sending = Sending(topic)
    sending.outbox = Outbox(connected, topic, {"linger.ms": 5}, sending.produce, sending.give_up)
    return sending.run(reader, sync)
