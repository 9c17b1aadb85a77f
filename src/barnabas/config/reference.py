"""Writes docs/configuration.md: `python -m barnabas.config.reference > docs/configuration.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final

from barnabas.config.broker_options import AREAS, RETIRED, RETIRED_PREFIXES
from barnabas.config.client_options import CLIENT_METRICS, QUOTA
from barnabas.config.group_options import GROUP
from barnabas.config.option import INT_MAX, LONG_MAX, Option, OptionTable
from barnabas.config.topic_options import RETIRED_TOPIC, TOPIC

INTRODUCTION: Final = """\
# Configuration

This page is generated from the declarations in `src/barnabas/config` by
`python -m barnabas.config.reference`; a test keeps it current.

A broker reads a `server.properties` with Kafka's option names (`barnabas start --config FILE`), and
`-o name=value` on the command line wins over the file. `${env:NAME}` in a value stands for an environment
variable, `${file:PATH:KEY}` for a key of a properties file, `${dir:PATH:NAME}` for a file of a folder.
Options that are not known or that Kafka has retired are accepted with a warning. A bad value stops the
start with one line that names the file and line, the option, the value and what is allowed.

Some options may also be changed while the broker runs (`kafka-configs`, `barnabas` or any admin client). A topic's
value is the first of: the topic's own, this broker's dynamic one, the dynamic one for all brokers, the file's or
command line's, the default.

* **Mode**: *read-only* options are read at start; *per-broker* ones may be changed on each broker;
  *cluster-wide* ones on each broker or for all brokers together.
* **What Barnabas does**: *works* means that the option does what it says; *stored and shown* that the value is
  checked, kept and shown by DescribeConfigs, but that nothing acts on it yet; *no effect* that there is
  nothing here for it to act on.

Defaults are Kafka's, with these exceptions: `node.id` is 1, since one broker needs no number;
`group.initial.rebalance.delay.ms` is 0, so that a first consumer starts at once; `log.segment.bytes` may be small.
Internal topics get as many replicas as there are brokers when the factor asks for more. `barnabas start` puts the
log into `~/.local/share/barnabas` when neither `log.dirs` nor `log.dir` is set.
"""

TABLES: Final = (
    (TOPIC, "Set on a topic (`barnabas topic create -c name=value`, `kafka-configs --entity-type topics`)."),
    (GROUP, "Set on a group (`kafka-configs --entity-type groups`)."),
    (CLIENT_METRICS, "Set on a client metrics subscription (`kafka-configs --entity-type client-metrics`)."),
    (
        QUOTA,
        "Set on users, client ids and IP addresses (`kafka-configs --entity-type users`, `clients`, `ips`).",
    ),
)


def default_text(option: Option[Any]) -> str:
    """The default as it is written in the page."""
    value = option.default
    if value is None:
        return "null"
    if isinstance(value, int) and not isinstance(value, bool) and value in (INT_MAX, LONG_MAX):
        return f"`{value}` (no limit)"
    if isinstance(value, float) and value in (INT_MAX, 1.7976931348623157e308):
        return "no limit"
    text = option.format(value)
    return f"`{text}`" if text else "(empty)"


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _rows(table: OptionTable, *, with_mode: bool) -> Iterator[str]:
    columns = ["Option", "Type", "Default", *(["Mode"] if with_mode else []), "What Barnabas does", "Meaning"]
    yield _row(columns)
    yield _row("---" for _ in columns)
    for option in table:
        if option.internal:
            continue
        yield _row(
            (
                f"`{option.name}`",
                option.kind.name.lower(),
                default_text(option),
                *([option.mode.value] if with_mode else []),
                option.mark.value,
                option.doc + (f" Default of the topic config `{option.topic}`." if option.topic else ""),
            )
        )


def render() -> str:
    """The whole page."""
    lines = [INTRODUCTION, "# Broker options", ""]
    for area in AREAS:
        lines += [f"## {area.title}", "", *_rows(area, with_mode=True), ""]
    for table, how in TABLES:
        lines += [f"# {table.title}", "", how, "", *_rows(table, with_mode=False), ""]
    lines += ["# Retired options", "", "Accepted in a `server.properties`, with a warning and no effect.", ""]
    lines += [_row(("Option", "Instead")), _row(("---", "---"))]
    lines += [_row((f"`{prefix}*`", why)) for prefix, why in RETIRED_PREFIXES.items()]
    lines += [_row((f"`{name}`", why)) for name, why in sorted(RETIRED.items())]
    lines += ["", "Refused as topic configs, as Kafka 4 does.", "", _row(("Topic config", "Instead"))]
    lines += [
        _row(("---", "---")),
        *(_row((f"`{name}`", why)) for name, why in sorted(RETIRED_TOPIC.items())),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render())
