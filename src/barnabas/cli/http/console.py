"""`barnabas console`: clusters in a browser."""

from __future__ import annotations

from barnabas.services.command import add_start
from barnabas.services.rows.console import CONSOLE
from barnabas.terminal.runner import new_app

app = new_app(CONSOLE.about)
add_start(app, CONSOLE)
