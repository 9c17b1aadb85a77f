"""`barnabas registry start`: a schema registry beside any Kafka-compatible cluster."""

from __future__ import annotations

from barnabas.services.command import add_start
from barnabas.services.rows.registry import REGISTRY
from barnabas.terminal.runner import new_app

app = new_app(REGISTRY.about)
add_start(app, REGISTRY)


@app.callback(help=REGISTRY.about)
def registry() -> None:
    """Keeps `start` a subcommand, though it is the only one."""
