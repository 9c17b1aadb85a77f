"""connect-distributed and connect-standalone: a Connect worker with a property file, as Kafka's books type them.

A standalone worker runs the connectors of its command line only. Kafka's keeps the offsets of sources in a file; here they
are in topics whose names come from that file's path and the machine, so that they too are committed with the records.
"""

from __future__ import annotations

import hashlib
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from barnabas.connect.errors import OptionError
from barnabas.connect.files import read_config
from barnabas.kafka_tools.servers import connect_mirror
from barnabas.services.command import serve
from barnabas.services.rows.connect import http_of
from barnabas.terminal.ending import end_process
from barnabas.terminal.errors import EXIT_FAILED, CliError

SERVERS: Final = "bootstrap.servers"
OFFSET_FILE: Final = "offset.storage.file.filename"
OF_CLIENTS: Final = ("security.protocol", "sasl.", "ssl.", "client.id", SERVERS)


def script() -> None:
    """Entry point of all three, by the name of the script."""
    name = Path(sys.argv[0]).name.removesuffix(".sh")
    runs = {"connect-standalone": standalone, "connect-mirror-maker": connect_mirror.main}
    run = runs.get(name, distributed)
    end_process(name, lambda: run(sys.argv[1:]))


def distributed(arguments: Sequence[str]) -> int:
    """connect-distributed [-daemon] worker.properties."""
    words = [word for word in arguments if word != "-daemon"]
    if len(words) != 1 or words[0] in ("-h", "--help"):
        print("Usage: connect-distributed worker.properties", file=sys.stderr)
        return EXIT_FAILED
    return _run(_read(words[0]), {}, False)


def standalone(arguments: Sequence[str]) -> int:
    """connect-standalone [-daemon] worker.properties [connector1.properties connector2.json ...]."""
    words = [word for word in arguments if word != "-daemon"]
    if not words or words[0] in ("-h", "--help"):
        print("Usage: connect-standalone worker.properties [connector.properties ...]", file=sys.stderr)
        return EXIT_FAILED
    worker = _read(words[0])
    first: dict[str, Mapping[str, str]] = {}
    for path in words[1:]:
        config = _read(path)
        name = config.get("name", "").strip()
        if not name:
            raise CliError(f"{path} has no `name` for its connector")
        first[name] = config
    mark = f"{socket.gethostname()}:{Path(worker.get(OFFSET_FILE, '/tmp/connect.offsets')).absolute()}"
    suffix = hashlib.sha256(mark.encode()).hexdigest()[:8]
    own = {f"{part}.storage.topic": f"connect-standalone-{suffix}-{part}s" for part in ("config", "offset")}
    own |= {
        "status.storage.topic": f"connect-standalone-{suffix}-status",
        "group.id": f"connect-standalone-{suffix}",
    }
    return _run(
        {**own, "offset.storage.partitions": "1", "status.storage.partitions": "1", **worker}, first, True
    )


def _read(path: str) -> dict[str, str]:
    """Raises CliError."""
    try:
        return read_config(Path(path))
    except OptionError as error:
        raise CliError(str(error)) from None


def _run(worker: Mapping[str, str], first: Mapping[str, Mapping[str, str]], alone: bool) -> int:
    """Serves until a signal. Raises CliError."""
    from barnabas.connect.worker.main import make_server
    from barnabas.connect.worker.settings import WorkerOptions
    from barnabas.observe.logs import set_up

    client = {name: text for name, text in worker.items() if name.startswith(OF_CLIENTS)}
    client.setdefault(SERVERS, "localhost:9092")
    try:
        options = replace(WorkerOptions.of(client, worker, first=first), standalone=alone)
    except OptionError as error:
        raise CliError(str(error)) from None
    set_up()
    server = make_server(options, http_of(worker))
    return serve(
        server, lambda: f"ready on {server.url} (cluster {client[SERVERS]}, {len(first)} connectors)"
    )
