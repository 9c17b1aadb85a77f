"""connect-mirror-maker: MirrorMaker 2, with a property file as Kafka's documentation has it."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.connect.errors import ConnectError, OptionError
from barnabas.connect.files import read_config
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, CliError

if TYPE_CHECKING:
    from barnabas.connect.mirror.dedicated import MirrorMakerFile
    from barnabas.connect.mirror.running import MirrorMaker

USAGE = "Usage: connect-mirror-maker [-daemon] mm2.properties [--clusters CLUSTER ...]"


def main(arguments: Sequence[str]) -> int:
    """connect-mirror-maker [-daemon] mm2.properties [--clusters CLUSTER ...]."""
    words = [word for word in arguments if word != "-daemon"]
    if not words or words[0].startswith("-"):
        print(USAGE, file=sys.stderr)
        return EXIT_OK if "--help" in words else EXIT_FAILED
    near: list[str] = []
    if words[1:]:
        if words[1] != "--clusters" or not words[2:]:
            print(USAGE, file=sys.stderr)
            return EXIT_FAILED
        near = [part for word in words[2:] for part in word.split(",") if part]
    return run(Path(words[0]), near)


def run(path: Path, near: Sequence[str]) -> int:
    """Copies until a signal. near: only into these clusters. Raises CliError."""
    from barnabas.connect.mirror.running import MirrorMaker
    from barnabas.observe.logs import set_up

    file = read_file(path)
    try:
        flows = file.flows(near)
        for line in file.unknown():
            print(f"note: {path}: {line}", file=sys.stderr)
    except OptionError as error:
        raise CliError(_named(path, error)) from None
    set_up()
    maker = MirrorMaker(flows)
    name = f"http://{socket.gethostname()}:0"
    flow_names = ", ".join(f"{flow} ({'topics' if flow.enabled else 'heartbeats'})" for flow in flows)
    if file.texts.get("listeners", "").strip():
        return _serve(maker, name, file.texts, flow_names)
    try:
        maker.start(name)
        print(f"ready: {flow_names}", flush=True)
        threading.Event().wait()
    except ConnectError as error:
        raise CliError(str(error)) from None
    finally:
        maker.stop()
    return EXIT_OK


def read_file(path: Path) -> MirrorMakerFile:
    """A file of properties. Raises CliError."""
    from barnabas.connect.mirror.dedicated import MirrorMakerFile

    try:
        return MirrorMakerFile(read_config(path))
    except OptionError as error:
        raise CliError(_named(path, error)) from None


def _named(path: Path, error: Exception) -> str:
    return str(error) if str(path) in str(error) else f"{path}: {error}"


def _serve(maker: MirrorMaker, name: str, texts: Mapping[str, str], flow_names: str) -> int:
    """Copies, and serves metrics where `listeners` says. Raises CliError."""
    from barnabas.services.command import serve
    from barnabas.services.rows.connect import http_of

    server = maker.server(name, http_of(texts))
    return serve(server, lambda: f"ready: {flow_names}; metrics at {server.url}/metrics")
