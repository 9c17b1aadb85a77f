"""kafka-console-share-consumer, on librdkafka's share consumer."""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from barnabas.kafka_tools.records.console_consumer import Formatter, deserializer
from barnabas.kafka_tools.shared.common import ToolError, checked, client_properties, parse, servers
from barnabas.kafka_tools.shared.librdkafka import connection
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Parsed, Refused, Tool
from barnabas.terminal.connection import configuration_errors
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, CliError

POLL_SECONDS: Final = 0.5
DEFAULT_GROUP: Final = "share"

TOOL: Final = Tool(
    "This tool helps to read data from Kafka topics using share groups and outputs it to standard output.",
    (
        *COMMON,
        Opt("topic", "The topic to consume on.", "String: topic"),
        Opt("group", "The share group id; `share` when none is given.", "String: share group id"),
        Opt("max-messages", "Stop after this many.", "Integer: num_messages"),
        Opt("timeout-ms", "Stop when no message comes for this long.", "Integer: timeout_ms"),
        Opt("property", "print.key, print.delivery, print.headers, key.separator ...", "String: prop"),
        Opt("formatter-property", "As --property.", "String: prop"),
        Opt("formatter-config", "A file of formatter properties.", "String: config file"),
        Opt("formatter", "The formatter's class.", "String: class"),
        Opt("key-deserializer", "String, Integer, Long, Short, Double, Float or ByteArray.", "String: class"),
        Opt("value-deserializer", "As --key-deserializer.", "String: class"),
        Opt("consumer-property", "A consumer property.", "String: consumer_prop"),
        Opt("consumer-config", "A file of consumer properties.", "String: config file", aliases=("consumer.config",)),
        Opt("reject-message-on-error", "Reject a message that cannot be shown, and go on."),
        Opt("enable-systest-events", "Of system tests."),
    ),
)  # fmt: skip


class ShareFormatter(Formatter):
    """As for other consumers; `print.delivery` shows how often a record was delivered."""

    __slots__ = ()

    def __post_init__(self) -> None:
        Formatter.__post_init__(self)
        if self.is_on("print.delivery"):
            before = ("print.timestamp", "print.partition", "print.offset")
            place = sum(self.is_on(name) for name in before)
            self.fields[place] = lambda message: b"Delivery:%d" % message.delivery_count()


def main(arguments: Sequence[str]) -> int:
    """Print messages; the exit code."""
    parsed = parse(TOOL, arguments)
    checked(TOOL, check, parsed)
    files, pairs = ["consumer-config", "command-config"], ["consumer-property", "command-property"]
    properties = {"client.id": "console-share-consumer", **client_properties(parsed, files, pairs)}
    group = group_of(parsed, properties)
    shown = client_properties(parsed, ["formatter-config"], ["property", "formatter-property"])
    formatter = ShareFormatter(
        shown,
        deserializer(parsed.get("key-deserializer") or shown.get("key.deserializer")),
        deserializer(parsed.get("value-deserializer") or shown.get("value.deserializer")),
    )
    consumer = connect(servers(parsed, properties), properties, group)
    return run(consumer, formatter, parsed)


def check(parsed: Parsed) -> None:
    """Raises Refused."""
    if "topic" not in parsed:
        raise Refused("--topic is a required argument")


def group_of(parsed: Parsed, properties: dict[str, str]) -> str:
    """The group, which may be named in two places as long as they agree. Raises Refused."""
    named = {name for name in (parsed.get("group"), properties.pop("group.id", None)) if name}
    if len(named) > 1:
        raise Refused(
            "The group ids provided in different places (directly using '--group', via '--consumer-property', or via "
            f"'--consumer-config') do not match. Detected group ids: {', '.join(repr(name) for name in sorted(named))}"
        )
    return named.pop() if named else DEFAULT_GROUP


def connect(bootstrap: str, properties: dict[str, str], group: str) -> Any:
    """Raises ToolError."""
    import confluent_kafka

    if not hasattr(confluent_kafka, "ShareConsumer"):
        raise ToolError("this confluent-kafka has no share consumer; install version 2.15 or newer")
    options = {"group.id": group, "share.acknowledgement.mode": "explicit"}
    try:
        reach = connection(bootstrap, properties, producing=False)
        reach.require_reachable()
        with configuration_errors():
            return confluent_kafka.ShareConsumer(reach.config(options))
    except CliError as error:
        raise ToolError(str(error)) from None


def run(consumer: Any, formatter: Formatter, parsed: Parsed) -> int:
    """Read until the count, the time-out or Ctrl-C; the exit code."""
    shown, code = 0, EXIT_OK
    left, timeout_ms = parsed.number("max-messages", -1), parsed.number("timeout-ms", -1)
    heard_at = time.monotonic()
    try:
        consumer.subscribe([parsed.text("topic")])
        while left != 0:
            messages = consumer.poll(POLL_SECONDS)
            for message in messages or ():
                heard_at = time.monotonic()
                if message.error() is not None:
                    raise ToolError(
                        f"Error processing message, terminating consumer process: {message.error()}"
                    )
                done = settle(consumer, message, formatter, parsed, keep=left != 0)
                shown += done
                left -= done if left > 0 else 0
            consumer.commit_sync()
            sys.stdout.buffer.flush()
            if not messages and timeout_ms >= 0 and (time.monotonic() - heard_at) * 1000 > timeout_ms:
                break
    except KeyboardInterrupt:
        pass
    except ToolError as error:
        print(error, file=sys.stderr)
        code = EXIT_FAILED
    finally:
        consumer.close()
        sys.stdout.flush()
        print(f"Processed a total of {shown} messages", file=sys.stderr)
    return code


def settle(consumer: Any, message: Any, formatter: Formatter, parsed: Parsed, *, keep: bool) -> int:
    """Print and accept a message, or release it once enough were shown; how many were shown. Raises ToolError for a
    message that cannot be shown, unless such messages are to be rejected.
    """
    from confluent_kafka import AcknowledgeType

    if not keep:
        consumer.acknowledge(message, AcknowledgeType.RELEASE)
        return 0
    try:
        line = formatter.line(message)
    except struct.error as error:
        if "reject-message-on-error" not in parsed:
            raise ToolError(f"Error processing message, terminating consumer process: {error}") from None
        consumer.acknowledge(message, AcknowledgeType.REJECT)
        return 0
    sys.stdout.buffer.write(line)
    consumer.acknowledge(message, AcknowledgeType.ACCEPT)
    return 1
