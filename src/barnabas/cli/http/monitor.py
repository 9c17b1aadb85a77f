"""`barnabas monitor`: watches clusters."""

from __future__ import annotations

from barnabas.services.command import add_start
from barnabas.services.rows.monitor import MONITOR
from barnabas.terminal.runner import new_app

app = new_app(MONITOR.about)
add_start(app, MONITOR)
