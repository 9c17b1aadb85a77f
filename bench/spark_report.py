"""Table, budgets, files and picture of one run of `bench.spark_throughput`."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.report import aligned, holds_text, machine, markdown

OURS = "barnabas"
READ = "topic into Spark, records/s"
WRITE = "Spark into a topic, records/s"
CHAIN = "access-log steps, lines/s"
LATENCY = "end to end, p50 / p99 ms"
ROWS = (READ, WRITE, CHAIN, LATENCY)
NAMES = {OURS: "barnabas", "kafka": "Spark's JVM connector", "confluent": "confluent-kafka by rows"}
COLORS = {OURS: "#1b6ca8", "kafka": "#7a7a7a", "confluent": "#d98032"}
BUDGETS = {READ: 800_000.0, WRITE: 500_000.0, CHAIN: 150_000.0, LATENCY: 300.0}
"""At least so many a second, and at most so many ms for the median record."""
START_SECONDS_MAX = 3.5
NOTE = (
    "Medians over the rounds; a ratio is the median of the rounds' own ratios (more than 1: ours is better). End to "
    "end: 1,000 records/s from a librdkafka producer through a streaming query (trigger 100 ms) to a librdkafka "
    "consumer. Reads and writes are of 200 B records; two partitions, two Spark tasks at a time."
)


@dataclass
class SparkResults:
    """samples[row][format] has an entry per round: {"round": n, "value": v, ...}."""

    formats: list[str]
    samples: dict[str, dict[str, list[dict[str, Any]]]] = field(default_factory=dict)
    starts: dict[str, list[float]] = field(default_factory=dict)
    archive_seconds: float | None = None
    skipped: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def add(self, row: str, format_name: str, number: int, value: float, **more: Any) -> None:
        entry = {"round": number, "value": value, **more}
        self.samples.setdefault(row, {}).setdefault(format_name, []).append(entry)

    def median(self, row: str, format_name: str, key: str = "value") -> float | None:
        values = [float(s[key]) for s in self.samples.get(row, {}).get(format_name, []) if key in s]
        return statistics.median(values) if values else None

    def ratio(self, row: str, rival: str) -> float | None:
        theirs = {s["round"]: s["value"] for s in self.samples.get(row, {}).get(rival, [])}
        pairs = [(s["value"], theirs.get(s["round"])) for s in self.samples.get(row, {}).get(OURS, [])]
        ratios = [b / a if row == LATENCY else a / b for a, b in pairs if a and b]
        return statistics.median(ratios) if ratios else None


def _cell(results: SparkResults, row: str, format_name: str) -> str:
    value = results.median(row, format_name)
    if value is None:
        return "-"
    if row == LATENCY:
        return f"{value:,.0f} / {results.median(row, format_name, 'p99') or 0:,.0f}"
    return f"{value:,.0f}"


def table(results: SparkResults) -> list[list[str]]:
    """Rows of text, the header first."""
    rivals = [f for f in results.formats if f != OURS]
    rows = [["query", *(NAMES[f] for f in results.formats), *(f"x {NAMES[r]}" for r in rivals)]]
    for row in ROWS:
        if row in results.samples:
            ratios = [f"{r:.2f}" if (r := results.ratio(row, rival)) else "-" for rival in rivals]
            rows.append([row, *(_cell(results, row, f) for f in results.formats), *ratios])
    return rows


def phase_table(results: SparkResults) -> list[list[str]]:
    """Where a micro-batch of the latency rows spends its time, by Spark's own count (median ms)."""
    medians: dict[str, dict[str, float]] = {}
    for name, samples in results.samples.get(LATENCY, {}).items():
        keys = samples[0].get("phases", {})
        medians[name] = {k: statistics.median(s["phases"][k] for s in samples) for k in keys}
    if not medians:
        return []
    keys = list(next(iter(medians.values())))
    return [
        ["micro-batch, ms", *keys],
        *([NAMES[name], *(f"{row[k]:.0f}" for k in keys)] for name, row in medians.items()),
    ]


def start_lines(results: SparkResults) -> list[str]:
    lines = []
    if results.archive_seconds is not None:
        lines.append(f"class archive built (once per Java and Spark): {results.archive_seconds:.1f} s")
    for key, text in (("plain", "without the class archive"), ("archive", "with it")):
        if key in results.starts:
            lines.append(f"session start {text}: {statistics.median(results.starts[key]):.2f} s")
    return lines


def verdicts(results: SparkResults) -> list[tuple[str, str, str, bool | None]]:
    """(what, found, wanted, whether it holds)."""
    lines: list[tuple[str, str, str, bool | None]] = []
    for row, limit in BUDGETS.items():
        value = results.median(row, OURS)
        if value is None:
            continue
        slow = row == LATENCY
        holds = value < limit if slow else value >= limit
        lines.append((row, f"{value:,.0f}", f"{'<' if slow else '>='} {limit:,.0f}", holds))
        if "kafka" in results.formats and not slow:
            ratio = results.ratio(row, "kafka")
            lines.append((row, f"{ratio or 0:.2f} x JVM connector", ">= 1", bool(ratio and ratio >= 1)))
    if "archive" in results.starts:
        value = statistics.median(results.starts["archive"])
        lines.append(
            ("session start", f"{value:.2f} s", f"< {START_SECONDS_MAX} s", value < START_SECONDS_MAX)
        )
    return lines


def show(results: SparkResults) -> bool:
    """Prints tables and budgets -> whether none is broken."""
    print("\n" + aligned(table(results), left=1))
    phases = phase_table(results)
    if phases:
        print("\n" + aligned(phases, left=1))
    print("\n".join(["", *start_lines(results), "", NOTE, "", "Budgets"]))
    lines = verdicts(results)
    print(aligned([[holds_text(holds), *texts] for *texts, holds in lines], left=2))
    return all(holds for *_, holds in lines)


def write(results: SparkResults, directory: Path) -> None:
    """spark.json (every sample) and spark.md."""
    directory.mkdir(parents=True, exist_ok=True)
    plain = {
        "machine": machine(),
        "settings": results.settings,
        "skipped": results.skipped,
        "rows": results.samples,
        "start_seconds": results.starts,
        "archive_seconds": results.archive_seconds,
        "budgets": [
            dict(zip(("what", "found", "wanted", "holds"), v, strict=True)) for v in verdicts(results)
        ],
    }
    (directory / "spark.json").write_text(json.dumps(plain, indent=1) + "\n")
    facts = ", ".join(f"{k} {v}" for k, v in {**machine(), **results.settings}.items())
    budgets = [["what", "found", "wanted", "holds"]]
    budgets += [[*texts, holds_text(holds)] for *texts, holds in verdicts(results)]
    parts = [f"# Spark bench\n\n{facts}\n", markdown(table(results)), f"\n{NOTE}"]
    phases = phase_table(results)
    if phases:
        parts.append(f"\nWhere a micro-batch spends its time, by Spark's own count:\n\n{markdown(phases)}")
    parts += ["", *(f"* {line}" for line in start_lines(results))]
    parts += ["\n## Budgets\n", markdown(budgets)]
    parts += [f"\nSkipped: {NAMES[name]}: {why}" for name, why in results.skipped.items()]
    (directory / "spark.md").write_text("\n".join(parts) + "\n")


def draw(results: SparkResults, path: Path) -> None:
    """The picture: a panel per query, a bar per format, a line for the budget. Raises ImportError without matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [row for row in ROWS if row in results.samples]
    if not rows:
        return
    figure, axes = pyplot.subplots(
        len(rows), 1, figsize=(9, 1.45 * len(rows)), layout="constrained", squeeze=False
    )
    for axis, row in zip(axes[:, 0], rows, strict=True):
        values = [results.median(row, f) or 0 for f in results.formats]
        bars = axis.barh(
            [NAMES[f] for f in results.formats], values, color=[COLORS[f] for f in results.formats]
        )
        axis.bar_label(bars, [f" {_cell(results, row, f)}" for f in results.formats], fontsize=8)
        axis.axvline(BUDGETS[row], color="#b03030", linewidth=1, linestyle="--")
        title = (
            "records from producer to consumer, p50 / p99 in ms (shorter is better)"
            if row == LATENCY
            else row
        )
        axis.set_title(title, fontsize=10, loc="left")
        axis.invert_yaxis()
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axis.set_xlim(right=1.25 * max(*values, BUDGETS[row]))
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    figure.text(0.99, 0.005, "dashed: budget", ha="right", fontsize=7, color="#b03030")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
