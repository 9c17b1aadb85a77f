"""What the tools share: connecting, asking, and ending as Kafka's tools end."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from barnabas import __version__
from barnabas.admin import Admin, ResourceError
from barnabas.client.errors import BrokerError, ClientError, UnsupportedByBroker
from barnabas.client.options import ClientOptions
from barnabas.config.option import ConfigError
from barnabas.config.properties import parse_properties
from barnabas.kafka_tools.failures import ToolError as ToolError
from barnabas.kafka_tools.shared.parser import Parsed, Refused, Tool
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, describe_failure, discard_output
from barnabas.terminal.output import MANNER
from barnabas.terminal.probe import NotKafka, require_kafka
from barnabas.wire.errors import ErrorCode

CONTACT_SECONDS: Final = 2.0
"""How long to try a server that refuses connections: it may be starting."""


class HelpShown(Exception):
    """--help or --version was given and answered."""


def parse(tool: Tool, arguments: Sequence[str]) -> Parsed:
    """Read the command line and answer --help and --version. Raises Refused, HelpShown."""
    MANNER.property_option = property_option(tool)
    MANNER.address_option = "--bootstrap-server"
    try:
        parsed = tool.parse(arguments)
    except Refused as refused:
        if refused.show_usage:
            refused.args = (f"{refused}\n{tool.usage()}".rstrip(),)
        raise
    if "help" in parsed or (not arguments and any(option.name == "help" for option in tool.options)):
        print(tool.usage(), end="")
        raise HelpShown
    if "version" in parsed:
        print(f"{__version__} (barnabas)")
        raise HelpShown
    return parsed


def say(text: str, end: str = "\n") -> None:
    """Write what is not a result: errors, warnings and notes go to standard error, so that `> file` holds results only.

    Some of Kafka's tools write these to standard output.
    """
    sys.stdout.flush()  # keeps the order of what was printed, also when both go to one file
    print(text, end=end, file=sys.stderr)


PROPERTY_OPTIONS: Final = (
    "command-property", "consumer-property", "producer-property", "command-config", "consumer.config", "producer.config"
)  # fmt: skip


def property_option(tool: Tool) -> str:
    """How the tool's user sets a property of its client."""
    names = {name for option in tool.options for name in (option.name, *option.aliases) if not option.old}
    option = next((name for name in PROPERTY_OPTIONS if name in names), "")
    if not option:
        return "the property"
    return f"--{option}" if option.endswith("-property") else f"in the file of --{option}:"


def guarded(name: str, run: Callable[[Sequence[str]], int], arguments: Sequence[str]) -> int:
    """Run a tool; every failure is a message and exit code 1, never a traceback."""
    try:
        return run(arguments)
    except HelpShown:
        return EXIT_OK
    except Refused as refused:
        print(refused, file=sys.stderr)
    except ToolError as error:
        print(error, file=sys.stderr)
    except UnsupportedByBroker as error:
        print(unsupported_error(error), file=sys.stderr)
    except ClientError as error:
        print(f"{name}: {error}", file=sys.stderr)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        description = describe_failure(error)
        discard_output()
        print(f"{name}: {description}", file=sys.stderr)
    finally:
        while _CONNECTED:
            _CONNECTED.pop().close()
    return EXIT_FAILED


def checked(tool: Tool, check: Callable[[Parsed], None], parsed: Parsed) -> None:
    """Run a tool's own check of its options, with the usage after its message. Raises Refused."""
    try:
        check(parsed)
    except Refused as refused:
        if not refused.show_usage:
            raise
        raise Refused(f"{refused}\n{tool.usage()}".rstrip(), False) from None


def say_ignored(parsed: Parsed, names: Sequence[str]) -> None:
    """Report options that were given and have no effect here."""
    for name in names:
        if name in parsed:
            print(
                f"WARN --{name} has no effect here: its figures are those of Java's client", file=sys.stderr
            )


def names_servers(parsed: Parsed) -> bool:
    """Whether the options or the environment name brokers."""
    addresses = (parsed.get(name) for name in ("bootstrap-server", "broker-list"))
    return any(addresses) or bool(os.environ.get("BARNABAS_BOOTSTRAP"))


def servers(parsed: Parsed, properties: Mapping[str, str] | None = None) -> str:
    """The bootstrap servers that the options name. properties: of the client. Raises Refused when there are none.

    Tools of the ZooKeeper era take ZooKeeper's address. The brokers are then the one that the environment names, or
    those that are registered there.
    """
    addresses = (
        parsed.get("bootstrap-server") or parsed.get("broker-list") or os.environ.get("BARNABAS_BOOTSTRAP")
    )
    if addresses:
        return addresses.split("/", 1)[0]
    zookeeper = parsed.get("zookeeper")
    if zookeeper:
        from barnabas.kafka_tools.zookeeper.lookup import servers_at

        protocol = (properties or {}).get("security.protocol", "PLAINTEXT")
        return servers_at(zookeeper, protocol, parsed.get("zk-tls-config-file"))
    raise Refused('Missing required argument "[bootstrap-server]"')


def read_properties(path: str) -> dict[str, str]:
    """A property file, in Java's syntax. Raises OSError, ToolError."""
    try:
        read = list(parse_properties(Path(path).read_text("utf-8")))
    except ConfigError as error:
        raise ToolError(f"{path}: {error}") from None
    return {item.name: item.value.strip() for item in read}


def client_properties(parsed: Parsed, files: Sequence[str], pairs: Sequence[str]) -> dict[str, str]:
    """Client properties of the file options `files` and the name=value options `pairs`; the latter take precedence."""
    properties_read: dict[str, str] = {}
    for name in files:
        path = parsed.get(name)
        if path:
            properties_read |= read_properties(path)
    for name in pairs:
        for item in parsed.all(name):
            key, _, value = item.partition("=")
            properties_read[key.strip()] = value
    return properties_read


_CONNECTED: Final[list[Admin]] = []
"""What `guarded` closes when the tool ends."""


def connect(parsed: Parsed) -> Admin:
    """An admin of the cluster that the options name. Raises Refused, ToolError, ClientError."""
    properties = client_properties(parsed, ["command-config"], ["command-property"])
    properties["bootstrap.servers"] = servers(parsed, properties)
    properties.setdefault("client.id", "kafka-tool")
    options = replace(ClientOptions.from_kafka(properties), contact_timeout_s=CONTACT_SECONDS)
    require_broker(options, properties.get("security.protocol", "PLAINTEXT"))
    admin = Admin(options)
    _CONNECTED.append(admin)
    return admin


def live_brokers(admin: Admin) -> list[int]:
    """The ids of the brokers that are up, in order."""
    return [int(broker.id) for broker in admin.cluster.describe().brokers]


def require_broker(options: ClientOptions, protocol: str) -> None:
    """Raises ToolError at once when the first address that accepts connections does not speak Kafka's protocol."""
    for host, port in options.bootstrap:
        try:
            with socket.create_connection((host, port), CONTACT_SECONDS) as connected:
                require_kafka(connected, f"{host}:{port}", protocol)
                return
        except NotKafka as error:
            raise ToolError(str(error)) from None
        except OSError:
            continue  # the client tries again, and its error says more


# What Kafka's clients say when the broker sends a code without a message.
TEXTS: Final[Mapping[int, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.GROUP_ID_NOT_FOUND: "The group id does not exist.",
    ErrorCode.NON_EMPTY_GROUP: "The group is not empty.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "Deleting offsets of a topic is forbidden while the consumer group "
    "is actively subscribed to it.",
    ErrorCode.OFFSET_OUT_OF_RANGE: "The requested offset is not within the range of offsets maintained by the server.",
    ErrorCode.SECURITY_DISABLED: "Security features are disabled.",
}

JAVA_NAMES: Final[Mapping[int, str]] = {
    ErrorCode.GROUP_ID_NOT_FOUND: "GroupIdNotFoundException",
    ErrorCode.NON_EMPTY_GROUP: "GroupNotEmptyException",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "GroupSubscribedToTopicException",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "UnknownTopicOrPartitionException",
    ErrorCode.OFFSET_OUT_OF_RANGE: "OffsetOutOfRangeException",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "UnsupportedByAuthenticationException",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "DelegationTokenDisabledException",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "InvalidReplicaAssignmentException",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "TransactionalIdNotFoundException",
}


def error_text(code: int, message: str | None = None) -> str:
    """An error code in words: the broker's message if it sent one."""
    return message or TEXTS.get(code) or BrokerError(code, "").args[0].strip(": ")


def java_error(code: int, message: str | None = None) -> str:
    """An error as Java prints it: the exception's class and its message."""
    if code in JAVA_NAMES:
        name = JAVA_NAMES[code]
    else:
        name = "".join(part.capitalize() for part in ErrorCode(code).name.split("_")) + "Exception"
    return f"org.apache.kafka.common.errors.{name}: {error_text(code, message)}"


def text_of(error: Exception) -> str:
    """An error as Kafka's clients word it, without its class."""
    match error:
        case ResourceError():
            return error_text(error.code, error.reason)
        case UnsupportedByBroker():
            return unsupported_text(error)
    return str(error)


def java_text(error: Exception) -> str:
    """An error as Java prints it, with its class, where there is one in Java."""
    match error:
        case ResourceError():
            return java_error(error.code, error.reason)
        case UnsupportedByBroker():
            return unsupported_error(error)
    return str(error)


def unsupported_text(error: UnsupportedByBroker) -> str:
    """The message of Kafka's clients about a request that the broker does not serve, with its name in capitals."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", error.api).upper()
    return f"The node does not support {name}"


def unsupported_error(error: UnsupportedByBroker) -> str:
    """The same as an error of Java."""
    return java_error(ErrorCode.UNSUPPORTED_VERSION, unsupported_text(error))


def partition_ranges(text: str) -> Iterator[int]:
    """`0,1,2` as numbers. Raises Refused."""
    for item in text.split(","):
        if not item.strip().isdigit():
            raise Refused(f"Invalid partition: {item!r}", False)
        yield int(item)
