"""docs/monitoring.md lists the metrics as they are declared."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from barnabas.connect.mirror import measures
from barnabas.observe import service_metrics
from barnabas.observe.metrics import METRICS as OF_BROKER
from barnabas.observe.metrics import table

METRICS = (*OF_BROKER, *service_metrics.METRICS, *measures.METRICS)
PAGE = Path(__file__).parents[2] / "docs" / "monitoring.md"
RULES = Path(__file__).parents[2] / "packaging" / "prometheus" / "barnabas-alerts.yml"
DASHBOARD = Path(__file__).parents[2] / "packaging" / "grafana" / "barnabas.json"


def series() -> set[str]:
    """The names of all series."""
    names = {metric.name for metric in METRICS}
    return names | {
        f"{metric.name}_{part}" for metric in METRICS if metric.has_parts for part in ("count", "sum")
    }


def test_the_table_is_that_of_the_declarations() -> None:
    text = PAGE.read_text()
    module = "barnabas.observe.metrics"
    assert table() in text, f"write it anew: .venv/bin/python -c 'import {module} as m; print(m.table())'"
    assert table(service_metrics.METRICS) in text, (
        f"write it anew: .venv/bin/python -c 'import {module} as m, barnabas.observe.service_metrics as s; "
        "print(m.table(s.METRICS))'"
    )
    assert table(measures.METRICS) in text, (
        f"write it anew: .venv/bin/python -c 'import {module} as m, barnabas.connect.mirror.measures as s; "
        "print(m.table(s.METRICS))'"
    )


def test_each_metric_has_a_name_of_its_own_that_prometheus_allows() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z_:][a-z0-9_:]*", name) for name in names)


def test_every_name_on_the_page_is_declared() -> None:
    names = set(re.findall(r"\bkafka_[a-z]+_[a-z_]+[a-z]\b", PAGE.read_text()))
    declared = series()
    names = {name for name in names if not name.startswith("kafka_client_")}  # clients choose these
    assert {name for name in names if not any(one.startswith(name) for one in declared)} == set()


def test_alert_rules_use_declared_series() -> None:
    rules = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    declared = series()
    used = [set(re.findall(r"\bkafka_\w+", rule["expr"])) for rule in rules]
    assert all(used)
    assert set().union(*used) <= declared


def test_the_dashboard_uses_declared_series() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    used = {name for text in expressions for name in re.findall(r"\bkafka_\w+", text)}
    assert used
    assert used <= series()
