"""`barnabas rest start`: the REST proxy beside any Kafka-compatible cluster."""

from __future__ import annotations

from barnabas.services.command import add_start
from barnabas.services.rows.rest import REST
from barnabas.terminal.runner import new_app

app = new_app(REST.about)
add_start(app, REST)


@app.callback(help=REST.about)
def rest() -> None:
    """Keeps `start` a subcommand, though it is the only one."""
