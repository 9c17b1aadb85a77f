"""Barnabas's own client, for requests that librdkafka cannot send: with the same -b and -X, and the same one-line
errors.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from barnabas.client.blocking import BlockingClient
from barnabas.client.errors import BrokerUnavailable, ClientError
from barnabas.client.options import ClientOptions
from barnabas.kafka_tools.common import Admin, ToolError, require_broker
from barnabas.kafka_tools.parser import Refused
from barnabas.terminal.connection import target
from barnabas.terminal.errors import CliError
from barnabas.terminal.output import MANNER


@contextlib.contextmanager
def direct(bootstrap: str | None, properties: Iterable[str] | None) -> Iterator[Admin]:
    """A client of the cluster that -b and -X name. Every failure inside is raised as CliError."""
    where, options = target(bootstrap, properties)
    if MANNER.verbose:
        show_requests()
    options["bootstrap.servers"] = where
    try:
        parsed = replace(ClientOptions.from_kafka(options), contact_timeout_s=0.0)
        require_broker(parsed, options.get("security.protocol", "PLAINTEXT"))
        client = BlockingClient(parsed)
        with client:
            yield Admin(client)
    except BrokerUnavailable as error:
        raise CliError(
            f"{error}; start a broker with `barnabas start`, or name another with -b HOST:PORT"
        ) from None
    except (ClientError, ToolError, Refused) as error:
        raise CliError(plain(str(error))) from None


def show_requests() -> None:
    """Write what our own client sends and receives to standard error, as -v does with librdkafka's log."""
    import logging

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))
    logger = logging.getLogger("barnabas.client")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.DEBUG)


def plain(text: str) -> str:
    """A message without the name of Java's exception, and with what to do if that is known."""
    said = re.sub(r"org\.apache\.kafka\.common\.errors\.(\w+): ", "", text)
    if "UnknownTopicOrPartitionException" in text:
        return "no such topic; `barnabas topic list` shows what is there"
    return said
