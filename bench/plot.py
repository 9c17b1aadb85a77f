"""The picture of one run: a panel per kind of workload, a bar per broker."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from bench.report import Results, number
from bench.workloads import Workload

COLORS = {"barnabas": "#1b6ca8", "tansu": "#d98032", "kafka": "#7a7a7a"}
PANELS = (
    ("Produce, MB/s", ("produce", "librdkafka-produce")),
    ("Consume, MB/s", ("consume", "librdkafka-consume")),
    ("Requests of one record, requests/s", ("requests",)),
    ("Latency at 1,000 records/s, p99 in ms (shorter is better)", ("latency", "end-to-end")),
)


def _bars(axis: Any, labels: list[str], values: dict[str, list[float | None]], unit: str, log: bool) -> None:
    height = 0.8 / max(1, len(values))
    for i, (broker, row) in enumerate(values.items()):
        places = [y + i * height for y in range(len(labels))]
        shown = [v or 0 for v in row]
        bars = axis.barh(places, shown, height, label=broker, color=COLORS.get(broker))
        axis.bar_label(bars, [f" {number(v, unit)}" for v in row], fontsize=7)
    axis.set_yticks([y + 0.4 - height / 2 for y in range(len(labels))], labels, fontsize=8)
    axis.invert_yaxis()
    if log:
        axis.set_xscale("log")
    axis.margins(x=0.15)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(axis="x", labelsize=7)


def _label(workload: Workload) -> str:
    for prefix in ("produce ", "consume ", "one-record requests, "):
        if workload.name.startswith(prefix):
            return workload.name.removeprefix(prefix)
    return workload.name


def draw(results: Results, path: Path) -> None:
    """Write the plot as PNG. Raises ImportError without matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    groups = [(title, [w for w in results.samples if w.kind in kinds]) for title, kinds in PANELS]
    groups = [(title, rows) for title, rows in groups if rows]
    lengths = [len(rows) for _, rows in groups] + [2]
    figure, axes = pyplot.subplots(
        len(lengths), 1, figsize=(11, 1.2 * len(lengths) + 0.55 * sum(lengths)),
        gridspec_kw={"height_ratios": [n + 0.6 for n in lengths]}, layout="constrained", squeeze=False,
    )  # fmt: skip
    for axis, (title, rows) in zip(axes[:, 0], groups, strict=False):
        values = {b: [results.median(w, b) for w in rows] for b in results.brokers}
        _bars(axis, [_label(w) for w in rows], values, rows[0].unit, log=rows[0].is_latency)
        axis.set_title(title, fontsize=10, loc="left")
    resources = [results.start_seconds, results.idle_mb]
    middles = {b: [statistics.median(r[b]) if r.get(b) else None for r in resources] for b in results.brokers}
    _bars(axes[-1, 0], ["start-up, s", "idle memory, MB"], middles, "ms", log=True)
    axes[-1, 0].set_title("Start-up and idle memory (shorter is better)", fontsize=10, loc="left")
    axes[0, 0].legend(fontsize=8, loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
