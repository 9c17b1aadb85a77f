"""`barnabas metrics history`: what a monitor has kept, as a plot in the terminal, a picture, JSON or CSV."""

from __future__ import annotations

import csv
import sys
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from barnabas.cli.administration.metrics import app
from barnabas.cli.monitoring.asking import DEFAULT_URL, MonitorUrl, ask
from barnabas.extras import how_to_install
from barnabas.terminal.errors import EXIT_OK, CliError, UsageError
from barnabas.terminal.output import print_json, print_table, size_text, summarize
from barnabas.terminal.runner import example

TICKS: Final = 5
HEIGHT: Final = 20
PNG_INCHES: Final = (11.0, 5.0)
BREAK_STEPS: Final = 3
"""A line is not drawn over a gap of more than so many steps."""


class Output(StrEnum):
    """What `metrics history` writes."""

    PLOT = "plot"
    TABLE = "table"
    PNG = "png"
    JSON = "json"
    CSV = "csv"


@app.command(
    "history",
    epilog=example(
        "barnabas metrics history",
        "barnabas metrics history group_lag --label group=billing --since 2d",
        "barnabas metrics history disk_free_bytes --since 15d --output png --file disks.png",
    ),
)
def history(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", show_default=False, help="Default: list the names that are kept."),
    ] = None,
    since: Annotated[
        str,
        typer.Option("--since", metavar="TIME", help="Where to begin: 30m, 12h, 2d, or seconds since 1970."),
    ] = "1d",
    until: Annotated[
        str, typer.Option("--until", metavar="TIME", help="Where to end, in the same words.")
    ] = "0s",
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--label",
            metavar="NAME=VALUE",
            show_default=False,
            help="Only series with this label, * for anything; may be repeated.",
        ),
    ] = None,
    output: Annotated[
        Output, typer.Option("--output", metavar="FORMAT", help="plot, table, png, json or csv.")
    ] = Output.PLOT,
    file: Annotated[
        Path | None,
        typer.Option(
            "-f",
            "--file",
            metavar="FILE",
            help="Where to write. Default: standard output.",
            show_default=False,
        ),
    ] = None,
    monitor: MonitorUrl = DEFAULT_URL,
    json: Annotated[bool, typer.Option("--json", help="The same as --output json.")] = False,
) -> int:
    """Show values that a monitor has kept: lag of groups, rates and sizes of topics, disks, brokers."""
    query = [_label(text) for text in labels or ()]
    if json:
        output = Output.JSON
    if name is None:
        all_series = ask(monitor, "/v1/series", query)["series"]
        if output == Output.JSON:
            print_json(all_series)
        else:
            rows = [(one["name"], _labels_text(one), one["unit"], one["help"]) for one in all_series]
            print_table(("NAME", "LABELS", "UNIT", "WHAT"), rows)
        return EXIT_OK
    answer = ask(monitor, "/v1/history", [("name", name), *query, ("since", since), ("until", until)])
    series = [one for one in answer["series"] if one["points"]]
    if not series:
        raise CliError(f"{name}: nothing is kept of that time; `barnabas metrics history` lists the names")
    if output == Output.PNG:
        _write_png(series, file)
        return EXIT_OK
    text = _TEXTS[output](series, answer)
    if file is None:
        print(text)
    else:
        try:
            file.write_text(text + "\n")
        except OSError as error:
            raise CliError(f"cannot write {file}: {error.strerror}") from None
        summarize(f"written to {file}")
    return EXIT_OK


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--label {text!r} is not NAME=VALUE")
    return name, value


def _labels_text(series: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in series["labels"].items())


def _time(at_s: float, pattern: str = "%Y-%m-%d %H:%M:%S") -> str:
    return datetime.fromtimestamp(at_s).strftime(pattern)


def _value_text(value: float, unit: str) -> str:
    if unit == "bytes":
        return size_text(value)
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:,.2f}"


# --- texts ------------------------------------------------------------------------------------------------


def _as_json(series: list[dict[str, Any]], answer: dict[str, Any]) -> str:
    import json as library

    return library.dumps({**answer, "series": series}, indent=2, ensure_ascii=False)


def _as_csv(series: list[dict[str, Any]], answer: dict[str, Any]) -> str:
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    labels = sorted({label for one in series for label in one["labels"]})
    writer.writerow(("time", "name", *labels, "mean", "max"))
    for one in series:
        named = [one["labels"].get(label, "") for label in labels]
        for at_s, mean, peak in one["points"]:
            writer.writerow((at_s, one["name"], *named, mean, peak))
    return text.getvalue().rstrip("\n")


def _as_table(series: list[dict[str, Any]], answer: dict[str, Any]) -> str:
    """First, last, mean and greatest value of each series."""
    lines = []
    for one in series:
        means, unit = [mean for _, mean, _ in one["points"]], one["unit"]
        peak = max(peak for _, _, peak in one["points"])
        facts = (
            ("from", means[0]),
            ("to", means[-1]),
            ("mean", sum(means) / len(means)),
            ("max", peak),
        )
        figures = ", ".join(f"{word} {_value_text(value, unit)}" for word, value in facts)
        lines.append(
            f"{one['name']} {_labels_text(one)}: {figures} {unit if unit != 'bytes' else ''}".rstrip()
        )
    return "\n".join(lines)


def _as_plot(series: list[dict[str, Any]], answer: dict[str, Any]) -> str:
    try:
        import plotext
    except ImportError:
        raise CliError(
            f"plots need an extra that is not installed (plotext); install it with {how_to_install('plots')}, or choose "
            "--output table"
        ) from None
    import shutil

    width = shutil.get_terminal_size().columns
    figure = plotext.figure
    figure.clear()
    figure.theme("default" if sys.stdout.isatty() else "colorless")
    figure.plot_size(max(width - 1, 40), HEIGHT)
    for one in series:
        for i, part in enumerate(_unbroken(one["points"])):
            line = figure.signal([at for at, _, _ in part], [mean for _, mean, _ in part], marker="braille")
            line.lines()
            if i == 0 and len(series) > 1:
                line.label(_labels_text(one))
            figure.draw(line)
    first, last = _bounds(series)
    pattern = "%H:%M" if last - first <= 86_400 else "%m-%d %H:%M"
    places = [first + (last - first) * i / (TICKS - 1) for i in range(TICKS)]
    figure.ruler("x").ticks(places, [_time(place, pattern) for place in places])
    low, high = _range(series)
    levels = [low + (high - low) * i / (TICKS - 1) for i in range(TICKS)]
    figure.ruler("y").ticks(levels, [_value_text(level, series[0]["unit"]) for level in levels])
    drawn = figure.build().string(colorless=not sys.stdout.isatty())
    return f"{series[0]['name']}, {series[0]['unit']}\n{drawn.rstrip()}\n{_as_table(series, answer)}"


def _unbroken(points: list[list[float]]) -> list[list[list[float]]]:
    """The points in parts without large gaps: nothing is known of the time in which no monitor ran."""
    parts: list[list[list[float]]] = []
    step = None
    for point in points:
        if parts and (step is None or point[0] - parts[-1][-1][0] <= BREAK_STEPS * step):
            step = min(point[0] - parts[-1][-1][0], step or 1 << 30) if step is None else step
            parts[-1].append(point)
        else:
            parts.append([point])
            step = None
    return parts


def _bounds(series: list[dict[str, Any]]) -> tuple[float, float]:
    times = [at for one in series for at, _, _ in one["points"]]
    first, last = min(times), max(times)
    return first, last if last > first else first + 1


def _range(series: list[dict[str, Any]]) -> tuple[float, float]:
    """The least and the greatest value, never the same."""
    values = [mean for one in series for _, mean, _ in one["points"]]
    low, high = min(values), max(values)
    return low, high if high > low else low + 1


_TEXTS: Final = {
    Output.PLOT: _as_plot,
    Output.TABLE: _as_table,
    Output.JSON: _as_json,
    Output.CSV: _as_csv,
}


# --- pictures ---------------------------------------------------------------------------------------------


def _write_png(series: list[dict[str, Any]], file: Path | None) -> None:
    """A picture with a line for each series, and a band up to its maxima. Raises CliError."""
    if file is None and sys.stdout.isatty():
        raise UsageError("--output png writes a picture: name a --file, or redirect standard output")
    try:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
        from matplotlib.figure import Figure
    except ImportError:
        raise CliError(
            f"pictures need an extra that is not installed (matplotlib); install it with {how_to_install('plots')}"
        ) from None
    figure = Figure(figsize=PNG_INCHES, layout="constrained")
    axes = figure.subplots()
    for one in series:
        label = _labels_text(one)
        for part in _unbroken(one["points"]):
            times: Any = [datetime.fromtimestamp(at) for at, _, _ in part]
            means, peaks = [mean for _, mean, _ in part], [peak for _, _, peak in part]
            (line,) = axes.plot(times, means, label=label, linewidth=1.2)
            axes.fill_between(times, means, peaks, color=line.get_color(), alpha=0.2, linewidth=0)
            label = "_nolegend_"
    locator = AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    axes.set_title(series[0]["help"] or series[0]["name"])
    axes.set_ylabel(series[0]["unit"])
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    if len(series) > 1:
        axes.legend(fontsize="small")
    try:
        if file is None:
            figure.savefig(sys.stdout.buffer, format="png")
        else:
            figure.savefig(file, format="png")
            summarize(f"written to {file}")
    except OSError as error:
        raise CliError(f"cannot write {file}: {error.strerror}") from None
