"""The kinds of targets besides topics, by name; base.py says how results are delivered to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.pipelines.delivery.base import TargetKind
from barnabas.pipelines.delivery.clickhouse import CLICKHOUSE
from barnabas.pipelines.delivery.console import CONSOLE
from barnabas.pipelines.delivery.database import DATABASE
from barnabas.pipelines.delivery.elasticsearch import ELASTICSEARCH
from barnabas.pipelines.delivery.files import FILES

TARGETS: Final[Mapping[str, TargetKind]] = {
    kind.name: kind for kind in (FILES, DATABASE, ELASTICSEARCH, CLICKHOUSE, CONSOLE)
}
