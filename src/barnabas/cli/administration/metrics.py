"""`barnabas metrics`: a broker's metrics by Kafka's names."""

from __future__ import annotations

import time
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from barnabas.terminal.beans import DEFAULT_URL, ask
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK
from barnabas.terminal.options import AsJson
from barnabas.terminal.output import print_json, print_table
from barnabas.terminal.runner import example, new_app


class WithPatterns(TyperGroup):
    """`barnabas metrics PATTERN` is `barnabas metrics show PATTERN`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `show` where no subcommand is named."""
        if not args or (args[0] not in self.commands and args[0] not in HELP):
            args = ["show", *args]
        return super().parse_args(ctx, args)


HELP: Final = ("-h", "--help")
app = new_app("Show a broker's metrics by Kafka's names, and what a monitor has kept.")
app.info.cls = WithPatterns
CLEAR: Final = "\x1b[H\x1b[2J"
MAIN_ATTRIBUTES: Final = ("Count", "OneMinuteRate", "Value", "50thPercentile", "99thPercentile")
"""Those that are shown of MBeans with many attributes, unless all are wanted."""


@app.command(
    "show",
    epilog=example(
        "barnabas metrics",
        "barnabas metrics show MessagesIn --watch",
        "barnabas metrics 'kafka.network:type=RequestMetrics,name=TotalTimeMs,*' --all",
        "barnabas metrics UnderReplicated -u http://broker2:9644 --json",
    ),
)
def metrics(
    patterns: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATTERN...",
            help="Parts of names, or patterns of JMX such as 'kafka.server:type=ReplicaManager,*'. Default: all.",
            show_default=False,
        ),
    ] = None,
    url: Annotated[
        str,
        typer.Option(
            "-u", "--url", envvar="BARNABAS_METRICS", metavar="URL", help="The broker's metrics service."
        ),
    ] = DEFAULT_URL,
    everything: Annotated[
        bool, typer.Option("-a", "--all", help="All attributes, not the main ones alone.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("-w", "--watch", help="Show them again and again, until Ctrl-C.")
    ] = False,
    interval: Annotated[
        float, typer.Option("-i", "--interval", min=0.1, metavar="SECONDS", help="For --watch.")
    ] = 2.0,
    json: AsJson = False,
) -> int:
    """Show a broker's metrics by the names of Kafka's MBeans and their attributes.

    The broker must show its metrics: `barnabas start --with metrics`.
    """
    while True:
        beans = ask(url, "beans", patterns or ())["beans"]
        if json:
            print_json(beans)
        else:
            if watch:
                print(CLEAR, end="")
            print_table(("MBEAN", "ATTRIBUTE", "VALUE"), rows(beans, everything=everything))
        if not watch:
            return EXIT_OK if beans else EXIT_FAILED
        time.sleep(interval)


def rows(beans: dict[str, dict[str, Any]], *, everything: bool) -> list[tuple[str, str, str]]:
    """(MBean, attribute, value as text) of what is shown."""
    shown = []
    for name, attributes in beans.items():
        main = [one for one in attributes if one in MAIN_ATTRIBUTES]
        for attribute in attributes if everything or not main else main:
            value = attributes[attribute]
            shown.append((name, attribute, f"{value:.6g}" if isinstance(value, float) else str(value)))
    return shown
