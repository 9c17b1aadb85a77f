"""The kinds of targets besides topics, by name; base.py says how results are delivered to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.pipelines.kinds.targets.base import TargetKind
from barnabas.pipelines.kinds.targets.clickhouse import CLICKHOUSE
from barnabas.pipelines.kinds.targets.connector import CONNECTOR
from barnabas.pipelines.kinds.targets.console import CONSOLE
from barnabas.pipelines.kinds.targets.database import DATABASE
from barnabas.pipelines.kinds.targets.elasticsearch import ELASTICSEARCH
from barnabas.pipelines.kinds.targets.files import FILES
from barnabas.pipelines.kinds.targets.view import VIEW

TARGETS: Final[Mapping[str, TargetKind]] = {
    kind.name: kind for kind in (FILES, DATABASE, ELASTICSEARCH, CLICKHOUSE, CONNECTOR, CONSOLE, VIEW)
}
