"""Table, budgets and files of one bench run."""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.workloads import KIB, LARGEST_BATCH_BYTES, Workload

OURS, RIVAL = "barnabas", "tansu"


@dataclass
class Results:
    """Everything one run found. samples[workload][broker] is a list, one entry per round."""

    brokers: list[str]
    samples: dict[Workload, dict[str, list[dict[str, Any]]]] = field(default_factory=dict)
    ceilings: dict[Workload, float | None] = field(default_factory=dict)
    start_seconds: dict[str, list[float]] = field(default_factory=dict)
    idle_mb: dict[str, list[float]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)

    def add(self, workload: Workload, broker: str, sample: dict[str, Any]) -> None:
        self.samples.setdefault(workload, {}).setdefault(broker, []).append(sample)

    def median(self, workload: Workload, broker: str, key: str = "value") -> float | None:
        values = [float(s[key]) for s in self.samples.get(workload, {}).get(broker, []) if key in s]
        return statistics.median(values) if values else None

    def ratio(self, workload: Workload, other: str) -> float | None:
        """Ours over the other: the median of the rounds' own ratios, so that a slow minute hits both sides.

        For latencies the other over ours, so that more is better everywhere.
        """
        rows = self.samples.get(workload, {})
        theirs = {s["round"]: s["value"] for s in rows.get(other, [])}
        pairs = [(s["value"], theirs.get(s["round"])) for s in rows.get(OURS, [])]
        ratios = [a / b for a, b in pairs if a and b]
        if workload.is_latency:
            ratios = [1 / r for r in ratios]
        return statistics.median(ratios) if ratios else None


@dataclass(frozen=True)
class Budget:
    """At least `least` times the rival in every workload that `covers` accepts."""

    text: str
    least: float
    covers: Callable[[Workload], bool]


def _batches(kind: str, batch_bytes: int) -> Callable[[Workload], bool]:
    return lambda w: w.kind == kind and w.batch_bytes == batch_bytes


BUDGETS = (
    Budget("64 KB batches, produce", 5.0, _batches("produce", 64 * KIB)),
    Budget("64 KB batches, consume", 5.0, _batches("consume", 64 * KIB)),
    Budget("1 MB batches, produce", 1.5, _batches("produce", LARGEST_BATCH_BYTES)),
    Budget("1 MB batches, consume", 3.0, _batches("consume", LARGEST_BATCH_BYTES)),
    Budget("one-record requests on 50 connections", 4.0, lambda w: w.kind == "requests"),
    Budget("p99 from send to ack", 1.0, lambda w: w.kind == "latency"),
)
START_SECONDS_MAX = 0.5
IDLE_MB_MAX = 80.0


@dataclass(frozen=True)
class Verdict:
    budget: str
    workload: str
    found: str
    wanted: str
    holds: bool | None


def verdicts(results: Results) -> list[Verdict]:
    """One line per budget and workload it covers; `holds` is None when it could not be measured."""
    lines = []
    for budget in BUDGETS:
        for workload in filter(budget.covers, results.samples):
            ratio = results.ratio(workload, RIVAL)
            outcome = f"{ratio:.2f} x" if ratio is not None else "not measured"
            holds = ratio >= budget.least if ratio is not None else None
            lines.append(
                Verdict(budget.text, workload.name, outcome, f">= {budget.least:g} x {RIVAL}", holds)
            )
    for text, values, most, unit in (
        ("start-up to `ready`", results.start_seconds.get(OURS), START_SECONDS_MAX, "s"),
        ("resident when idle", results.idle_mb.get(OURS), IDLE_MB_MAX, "MB"),
    ):
        middle = statistics.median(values) if values else None
        outcome = f"{middle:.2f} {unit}" if middle is not None else "not measured"
        holds = middle < most if middle is not None else None
        lines.append(Verdict(text, OURS, outcome, f"< {most:g} {unit}", holds))
    return lines


def number(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "ms":
        return f"{value:.2f}"
    if unit == "requests/s":
        return f"{value:,.0f}"
    return f"{value:,.0f}" if value >= 20 else f"{value:.1f}"


def _cell(results: Results, workload: Workload, broker: str) -> str:
    value = number(results.median(workload, broker), workload.unit)
    if workload.is_latency and value != "-":
        p50 = results.median(workload, broker, "p50_us")
        return f"{(p50 or 0) / 1000:.2f} / {value}"
    busy = results.median(workload, broker, "load_busy")
    return value + ("*" if busy is not None and busy > 0.9 else "")


def table(results: Results) -> list[list[str]]:
    """Rows of text, the header first."""
    rivals = [b for b in results.brokers if b != OURS]
    head = ["workload", "unit", *results.brokers, *(f"x {r}" for r in rivals), "generator alone"]
    rows = [head]
    for workload in results.samples:
        unit = "p50 / p99 ms" if workload.is_latency else workload.unit
        ratios = [
            f"{r:.2f}" if (r := results.ratio(workload, rival)) is not None else "-" for rival in rivals
        ]
        cells = [_cell(results, workload, broker) for broker in results.brokers]
        rows.append(
            [workload.name, unit, *cells, *ratios, number(results.ceilings.get(workload), workload.unit)]
        )
    for name, unit, values in (
        ("start-up", "s", results.start_seconds),
        ("idle memory", "MB", results.idle_mb),
    ):
        middles = {b: statistics.median(values[b]) for b in results.brokers if values.get(b)}
        cells = [f"{middles[b]:.2f}" if b in middles else "-" for b in results.brokers]
        ratios = [f"{middles[r] / middles[OURS]:.2f}" if {r, OURS} <= middles.keys() else "-" for r in rivals]
        rows.append([name, unit, *cells, *ratios, "-"])
    return rows


def aligned(rows: list[list[str]], left: int = 2) -> str:
    """Columns padded with spaces, the first `left` of them flush left."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def markdown(rows: list[list[str]]) -> str:
    head, *body = rows
    rule = ["---", "---", *["---:"] * (len(head) - 2)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *body])


NOTE = (
    "Medians over the rounds; a ratio is the median of the rounds' own ratios (more than 1: ours is better). "
    "`*`: the load generator was busy for over 90 % of the time, the broker may be faster than shown."
)


def machine() -> dict[str, str | int]:
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
    cores = sum(line.startswith("processor") for line in Path("/proc/cpuinfo").read_text().splitlines())
    return {
        "cpu": model,
        "cores": cores,
        "kernel": platform.release().partition("-")[0],
        "python": platform.python_version(),
    }


def write(results: Results, directory: Path) -> None:
    """results.json (every sample) and results.md (the tables)."""
    directory.mkdir(parents=True, exist_ok=True)
    rows, lines = table(results), verdicts(results)
    plain = {
        "machine": machine(),
        "settings": results.settings,
        "skipped": results.skipped,
        "failures": results.failures,
        "start_seconds": results.start_seconds,
        "idle_mb": results.idle_mb,
        "workloads": [
            {"name": w.name, "unit": w.unit, "generator_alone": results.ceilings.get(w), "samples": by_broker}
            for w, by_broker in results.samples.items()
        ],
        "budgets": [vars(v) for v in lines],
    }
    (directory / "results.json").write_text(json.dumps(plain, indent=1) + "\n")
    verdict_rows = [["budget", "workload", "found", "wanted", "holds"]]
    for v in lines:
        verdict_rows.append([v.budget, v.workload, v.found, v.wanted, holds_text(v.holds)])
    facts = ", ".join(f"{k} {v}" for k, v in {**machine(), **results.settings}.items())
    parts = [
        f"# Bench results\n\n{facts}\n",
        markdown(rows),
        f"\n{NOTE}\n",
        "## Budgets\n",
        markdown(verdict_rows),
    ]
    parts += [f"\nSkipped: {name}: {why}" for name, why in results.skipped.items()]
    parts += (
        ["\n## Failed samples\n", *(f"* {line}" for line in results.failures)] if results.failures else []
    )
    (directory / "results.md").write_text("\n".join(parts) + "\n")


def holds_text(holds: bool | None) -> str:
    return {True: "yes", False: "NO", None: "?"}[holds]
