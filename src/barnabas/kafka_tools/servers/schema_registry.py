"""schema-registry-start and schema-registry-stop: the schema registry with the property file that Confluent's books type.

`kafkastore.` options say where the brokers are; books of the ZooKeeper era name the ZooKeeper instead, and the brokers are
then those that are registered in it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from barnabas.connect.errors import OptionError
from barnabas.connect.files import read_config
from barnabas.kafka_tools.failures import ToolError
from barnabas.kafka_tools.shared.common import say
from barnabas.kafka_tools.zookeeper.lookup import servers_at
from barnabas.local.process_list import processes
from barnabas.services.access import Access
from barnabas.services.command import http_options, serve, services_extra
from barnabas.services.option import field_of
from barnabas.services.row import ServiceContext
from barnabas.services.rows.connect import listener_of
from barnabas.services.rows.registry import REGISTRY
from barnabas.terminal.ending import end_process
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, CliError

START: Final = "schema-registry-start"
STORE: Final = "kafkastore."
SERVERS: Final = "kafkastore.bootstrap.servers"
ZOOKEEPER: Final = "kafkastore.connection.url"
OF_CLIENTS: Final = ("security.protocol", "sasl.", "ssl.", "client.")
"""What of the options that begin with `kafkastore.` is a client's; the others are about the topic."""


def script() -> None:
    """Entry point of both, by the name of the script."""
    run = main if Path(sys.argv[0]).name == START else stop
    end_process(START, lambda: run(sys.argv[1:]))


def main(arguments: Sequence[str]) -> int:
    """schema-registry-start schema-registry.properties. Serves until a signal."""
    if len(arguments) != 1 or arguments[0] in ("-h", "--help"):
        print(f"USAGE: {START} schema-registry.properties", file=sys.stderr)
        return EXIT_FAILED
    from barnabas.observe.logs import set_up

    try:
        properties = read_config(Path(arguments[0]))
        client = client_of(properties)
    except (OptionError, ToolError) as error:
        raise CliError(str(error)) from None
    absent = REGISTRY.missing()
    if absent is not None:
        raise CliError(absent)
    with services_extra(REGISTRY):
        set_up()
        access = Access(is_open=True)
        listen = listener_of(properties, REGISTRY.port, "barnabas registry start --tls-cert FILE")
        http = http_options(listen, REGISTRY.body_mb, REGISTRY.timeout_s, access, requests=REGISTRY.requests)
        context = ServiceContext(values_of(properties), client, http, access)
        server = REGISTRY.make(context)
    return serve(server, lambda: f"ready on {server.url} ({REGISTRY.ready(context, server.health())})")


def client_of(properties: Mapping[str, str]) -> dict[str, str]:
    """The options of the client that reads and writes the topic of schemas. Raises ToolError."""
    client = {
        name.removeprefix(STORE): text
        for name, text in properties.items()
        if name.removeprefix(STORE).startswith(OF_CLIENTS) and name.startswith(STORE)
    }
    # Each address may begin with the listener's protocol, which then counts for all, as with Confluent's.
    servers = [one.strip().rpartition("://") for one in properties.get(SERVERS, "").split(",") if one.strip()]
    schemes = {scheme for scheme, _, _ in servers if scheme}
    if schemes:
        client.setdefault("security.protocol", min(schemes))
    where = ",".join(address for _, _, address in servers)
    if not where and properties.get(ZOOKEEPER):
        where = servers_at(properties[ZOOKEEPER], client.get("security.protocol", "PLAINTEXT"))
    return {**client, "bootstrap.servers": where or "localhost:9092"}


def values_of(properties: Mapping[str, str]) -> dict[str, object]:
    """The registry's own options, by field."""
    values: dict[str, object] = {field_of(word): option.default for word, option in REGISTRY.options.items()}
    values["topic"] = properties.get("kafkastore.topic") or values["topic"]
    values["group"] = properties.get("schema.registry.group.id") or values["group"]
    replicas = properties.get("kafkastore.topic.replication.factor", "")
    if replicas:
        if not replicas.lstrip("-").isdigit():
            raise CliError(f"kafkastore.topic.replication.factor={replicas} is not a number")
        values["replication"] = int(replicas)
    host = properties.get("host.name")
    if host:
        port = listener_of(properties, REGISTRY.port, "").rpartition(":")[2]
        values["advertise"] = f"{host}:{port}"
    return values


def stop(arguments: Sequence[str]) -> int:
    """SIGTERM to the registries that this user started with schema-registry-start on this machine."""
    pids = [pid for pid, words in processes() if any(Path(word).name == START for word in words[:2])]
    if not pids:
        say("No schema registry to stop")
        return EXIT_FAILED
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    return EXIT_OK
