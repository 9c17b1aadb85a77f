"""Tables, files and picture of one run of `python -m bench.storage`."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.plot import COLORS
from bench.report import aligned, machine, markdown

NOTES: Final = {
    "Cleaning": "MB of log that were there before, per second; peak is the resident memory of the whole process (before it "
    "starts to clean: 22 MB) with the default offset map, which grows with the keys up to its bound.",
    "Recovery": "Opening a log of which nothing is known to be on disk: every checksum is verified, indexes are built anew.",
    "Recovery after kill -9": "From the restart until the partition answers with its last offset, the same log once after "
    "kill -9 and once after a stop in order. Per GB: the difference of the two.",
    "Many partitions": "The same requests (one partition and one batch of 16 KB each, 4 connections) go to one or to "
    "many partitions in turn. x 1: CPU of the broker per MB, as a multiple of that with one partition; 1 is ideal. "
    "Medians of the rounds.",
    "A broker full of partitions": "After the runs above, so that every partition has been written to.",
}


@dataclass
class Results:
    """tables[title][row][column] = value; `brokers` ran, `skipped` could not be had."""

    tables: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    samples: list[dict[str, Any]] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def put(self, title: str, row: str, cells: dict[str, float]) -> None:
        cells_of_row = self.tables.setdefault(title, {}).setdefault(row, {})
        cells_of_row.update({name: round(value, 4) for name, value in cells.items()})
        shown = ", ".join(f"{name} {number(value)}" for name, value in cells.items())
        print(f"{row}: {shown}", flush=True)

    def sample(self, **values: Any) -> None:
        self.samples.append(values)

    def median(self, key: str, **which: Any) -> float | None:
        values = [sample[key] for sample in self.samples if key in sample and which.items() <= sample.items()]
        return statistics.median(values) if values else None

    def fail(self, text: str) -> None:
        self.failures.append(text)
        print(f"FAILED {text}", flush=True)


def number(value: float | None) -> str:
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def rows_of(table: dict[str, dict[str, float]]) -> list[list[str]]:
    columns: list[str] = []
    for row in table.values():
        columns += [name for name in row if name not in columns]
    head = ["", *columns]
    return [head, *([name, *(number(row.get(column)) for column in columns)] for name, row in table.items())]


def show(results: Results) -> None:
    for title, table in results.tables.items():
        print(f"\n{title}\n{aligned(rows_of(table), left=1)}\n{NOTES[title]}")
    for line in results.failures:
        print(f"failed: {line}")


def write(results: Results, directory: Path) -> None:
    """storage.json, storage.md and, where matplotlib is installed, storage.png."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "storage.json").write_text(
        json.dumps({"machine": machine(), **vars(results)}, indent=1) + "\n"
    )
    facts = ", ".join(f"{key} {value}" for key, value in {**machine(), **results.settings}.items())
    parts = [f"# Storage\n\n{facts}\n"]
    for title, table in results.tables.items():
        lines = markdown(rows_of(table)).splitlines()
        lines[1] = lines[1].replace("| --- | --- |", "| --- | ---: |", 1)
        parts += [f"## {title}\n", "\n".join(lines), f"\n{NOTES[title]}\n"]
    parts += [f"Skipped: {name}: {why}" for name, why in results.skipped.items()]
    parts += [f"Failed: {line}" for line in results.failures]
    (directory / "storage.md").write_text("\n".join(parts).rstrip() + "\n")
    try:
        draw(results, directory / "storage.png")
    except ImportError:
        print("no plot: matplotlib is not installed (pip install 'barnabas[bench]')")
    print(f"\nwritten to {directory}: storage.md, storage.json, storage.png")


def draw(results: Results, path: Path) -> None:
    """A panel for each table: its first column, and where brokers are compared, a bar for each."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    tables = results.tables
    figure, axes = pyplot.subplots(
        len(tables), 1, figsize=(11, 1.1 * len(tables) + 0.5 * sum(map(len, tables.values()))),
        gridspec_kw={"height_ratios": [len(table) + 0.7 for table in tables.values()]}, layout="constrained",
        squeeze=False,
    )  # fmt: skip
    for axis, (title, table) in zip(axes[:, 0], tables.items(), strict=True):
        columns = rows_of(table)[0][1:]
        shown = [name for name in columns if name.endswith((" MB/s", " s/GB")) or name in COLORS]
        shown = shown or columns[:1]
        height = 0.8 / len(shown)
        for index, column in enumerate(shown):
            values = [row.get(column) for row in table.values()]
            places = [place + index * height for place in range(len(values))]
            color = COLORS.get(column.split(" ")[0], COLORS["barnabas"])
            bars = axis.barh(places, [value or 0 for value in values], height, label=column, color=color)
            axis.bar_label(bars, [f" {number(value)}" for value in values], fontsize=7)
        axis.set_yticks([place + 0.4 - height / 2 for place in range(len(table))], list(table), fontsize=8)
        axis.invert_yaxis()
        axis.margins(x=0.15)
        axis.set_title(title, fontsize=10, loc="left")
        axis.legend(fontsize=7, loc="lower right")
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
