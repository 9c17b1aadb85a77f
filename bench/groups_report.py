"""Table, files and picture of one run of `python -m bench.groups`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.report import aligned, machine, markdown

COLORS = {"barnabas": "#1b6ca8", "kafka": "#7a7a7a"}
NOTE = (
    "In brackets: CPU seconds of the broker in that time. Members of the classic protocol learn of a change with "
    "their next heartbeat (3 s), those of the consumer protocol with theirs (5 s, told by the broker): where one "
    "member joins or leaves, that wait is nearly all of the time."
)


@dataclass
class Results:
    """partitions, groups: the size of the large cluster. rows[name] = {"unit", broker: value, broker + " cpu"}."""

    partitions: int
    groups: int
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    brokers: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def add(self, row: str, unit: str, broker: str, value: float, *, cpu_s: float | None = None) -> None:
        row_values = self.rows.setdefault(row, {"unit": unit})
        row_values[broker] = round(value, 4)
        if cpu_s is not None:
            row_values[f"{broker} cpu"] = round(cpu_s, 2)
        if broker not in self.brokers:
            self.brokers.append(broker)
        cpu = "" if cpu_s is None else f", broker's CPU {cpu_s:.2f} s"
        print(f"{broker}: {row}: {_number(value, unit)} {unit}{cpu}", flush=True)


def _number(value: float, unit: str) -> str:
    if unit in ("commits/s", "us"):
        return f"{value:,.0f}"
    return f"{value:.0f}" if unit == "MB" else f"{value:.2f}"


def _table(results: Results) -> list[list[str]]:
    rows = [["", "unit", *results.brokers]]
    for name, row_values in results.rows.items():
        cells = []
        for broker in results.brokers:
            text = _number(row_values[broker], row_values["unit"]) if broker in row_values else "-"
            cpu = row_values.get(f"{broker} cpu")
            cells.append(text if cpu is None else f"{text} ({cpu:.2f})")
        rows.append([name, row_values["unit"], *cells])
    return rows


def show(results: Results) -> None:
    print()
    print(aligned(_table(results)))
    print(f"\n{NOTE}")
    for line in results.failures:
        print(f"failed: {line}")


def write(results: Results, directory: Path) -> None:
    """groups.json, groups.md and, where matplotlib is installed, groups.png."""
    directory.mkdir(parents=True, exist_ok=True)
    plain = {"machine": machine(), **vars(results)}
    (directory / "groups.json").write_text(json.dumps(plain, indent=1) + "\n")
    facts = ", ".join(f"{key} {value}" for key, value in machine().items())
    size = f"large cluster: {results.partitions:,} partitions, {results.groups:,} groups"
    parts = [f"# Groups and large clusters\n\n{facts}; {size}\n", markdown(_table(results)), f"\n{NOTE}"]
    parts += [f"\nSkipped: {name}: {why}" for name, why in results.skipped.items()]
    parts += [f"\nFailed: {line}" for line in results.failures]
    (directory / "groups.md").write_text("\n".join(parts) + "\n")
    try:
        _draw(results, directory / "groups.png")
    except ImportError:
        print("no plot: matplotlib is not installed (pip install 'barnabas[bench]')")
    print(f"\nwritten to {directory}: groups.md, groups.json, groups.png")


def _draw(results: Results, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels: dict[str, list[str]] = {}
    for name, row_values in results.rows.items():
        stable = "members:" in name
        panels.setdefault("time to stable, s" if stable else row_values["unit"], []).append(name)
    figure, axes = pyplot.subplots(
        len(panels), 1, figsize=(10, 0.5 * len(results.rows) + 1.2 * len(panels)), layout="constrained",
        gridspec_kw={"height_ratios": [len(names) + 0.8 for names in panels.values()]}, squeeze=False,
    )  # fmt: skip
    for axis, (title, names) in zip(axes[:, 0], panels.items(), strict=True):
        height = 0.8 / max(1, len(results.brokers))
        for index, broker in enumerate(results.brokers):
            values = [results.rows[name].get(broker, 0) for name in names]
            places = [place + index * height for place in range(len(names))]
            bars = axis.barh(places, values, height, label=broker, color=COLORS.get(broker))
            labels = [
                _number(value, results.rows[name]["unit"]) for name, value in zip(names, values, strict=True)
            ]
            axis.bar_label(bars, [f" {label}" for label in labels], fontsize=7)
        axis.set_yticks([place + 0.4 - height / 2 for place in range(len(names))], names, fontsize=8)
        axis.invert_yaxis()
        axis.margins(x=0.15)
        axis.set_title(title, fontsize=10, loc="left")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].legend(fontsize=8, loc="lower right")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
