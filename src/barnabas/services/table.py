"""The HTTP services, in the order in which they start."""

from __future__ import annotations

from typing import Final

from barnabas.services.rows.connect import CONNECT
from barnabas.services.rows.console import CONSOLE
from barnabas.services.rows.metrics import METRICS
from barnabas.services.rows.monitor import MONITOR
from barnabas.services.rows.pipelines import PIPELINES
from barnabas.services.rows.registry import REGISTRY
from barnabas.services.rows.reporting import REPORTING
from barnabas.services.rows.rest import REST
from barnabas.services.rows.sql import SQL

ROWS: Final = {
    row.name: row for row in (REGISTRY, REST, REPORTING, METRICS, MONITOR, PIPELINES, SQL, CONNECT, CONSOLE)
}
"""By name. The registry comes first: the others ask it for its address when they start."""
