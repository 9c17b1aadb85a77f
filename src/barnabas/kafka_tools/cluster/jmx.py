"""kafka-jmx (JmxTool): the metrics of a broker by their MBeans, again and again.

Kafka's reads them from a JVM; this one asks the broker's metrics service.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from barnabas.kafka_tools.shared.common import ToolError, parse
from barnabas.kafka_tools.shared.parser import Opt, Parsed, Tool
from barnabas.terminal.beans import DEFAULT_URL, ask
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, CliError

TOOL: Final = Tool(
    "Dump JMX values to standard output.",
    (
        Opt(
            "object-name",
            "Names of MBeans, also with wild cards; may be repeated. Default: all.",
            "String: name",
        ),
        Opt("attributes", "Only these attributes, with commas between them.", "String: name"),
        Opt(
            "reporting-interval",
            "Time between two reports in ms, 2000 by default; -1: one report.",
            "Integer: ms",
        ),
        Opt("one-time", "One report only.", "Boolean: one-time", optional=True),
        Opt(
            "date-format",
            "How the time is written, as Java's SimpleDateFormat. Default: ms.",
            "String: format",
        ),
        Opt(
            "jmx-url",
            "The broker's metrics service: HOST:PORT, its URL, or a JMX URL of that host and port.",
            "String: service-url",
        ),
        Opt("report-format", "original, properties, csv or tsv.", "String: report-format"),
        Opt("jmx-auth-prop", "USER=PASSWORD.", "String: jmx-auth-prop"),
        Opt("jmx-ssl-enable", "Connect by TLS.", "Boolean: ssl-enable", optional=True),
        Opt("wait", "Wait until all named MBeans are there."),
        Opt("help", "Print usage information."),
    ),
)
INTERVAL_MS: Final = 2000
WAIT_S: Final = 10.0
PAUSE_S: Final = 0.1
FORMATS: Final = ("original", "properties", "csv", "tsv")
JAVA_FIELDS: Final = {
    "yyyy": "%Y", "yy": "%y", "MM": "%m", "dd": "%d", "HH": "%H", "hh": "%I", "mm": "%M", "ss": "%S", "a": "%p",
    "EEE": "%a", "Z": "%z",
}  # fmt: skip
JMX_URL: Final = re.compile(r"service:jmx:rmi://.*?rmi://([^/]+)/")


def main(arguments: Sequence[str]) -> int:
    """Print reports; the exit code."""
    parsed = parse(TOOL, arguments)
    try:
        run(parsed)
    except (ToolError, CliError) as error:
        print(error, file=sys.stderr)
        return EXIT_FAILED
    return EXIT_OK


def run(parsed: Parsed) -> None:
    """Raises ToolError, CliError."""
    url, names = url_of(parsed), parsed.all("object-name")
    wanted = [name for name in parsed.text("attributes").split(",") if name]
    style = parsed.text("report-format", "original").lower()
    style = style if style in FORMATS else "original"
    interval_ms = parsed.number("reporting-interval", INTERVAL_MS)
    is_once = interval_ms < 0 or ("one-time" in parsed and parsed.text("one-time").lower() != "false")
    print(f"Trying to connect to JMX url: {url}", file=sys.stderr)
    beans = first(url, names, waits="wait" in parsed)
    values = dict(attributes_of(beans, wanted))
    if not values:
        raise ToolError(f"No matched attributes for the queried objects {names}.")
    keys = ["time", *sorted(values)]
    if style == "original":
        print(",".join(f'"{key}"' for key in keys))
    while True:
        begun_s = time.monotonic()
        if values.keys() >= set(keys[1:]):
            report(style, keys, {**values, "time": time_text(parsed.get("date-format"))})
        if is_once:
            return
        time.sleep(max(interval_ms / 1000 - (time.monotonic() - begun_s), 0))
        values = dict(attributes_of(ask(url, "beans", names)["beans"], wanted))


def url_of(parsed: Parsed) -> str:
    """Where the metrics are. Raises ToolError."""
    url = parsed.text("jmx-url", DEFAULT_URL)
    of_jmx = JMX_URL.match(url)
    if of_jmx is not None:
        url = of_jmx[1]
    if "://" in url:
        return url
    login = parsed.text("jmx-auth-prop").replace("=", ":", 1)
    is_secure = "jmx-ssl-enable" in parsed and parsed.text("jmx-ssl-enable").lower() != "false"
    return f"{'https' if is_secure else 'http'}://{login}{'@' if login else ''}{url}"


def first(url: str, names: Sequence[str], *, waits: bool) -> dict[str, dict[str, Any]]:
    """The MBeans. waits: until those without wild cards are all there. Raises ToolError."""
    plain = {name for name in names if not re.search(r"[*?]", name)} if waits else set()
    deadline_s = time.monotonic() + WAIT_S
    while True:
        beans: dict[str, dict[str, Any]] = ask(url, "beans", names)["beans"]
        missing = plain - beans.keys()
        if not missing:
            return beans
        if time.monotonic() > deadline_s:
            names_missing = ",".join(sorted(missing))
            raise ToolError(
                f"Could not find all requested object names after {int(WAIT_S * 1000)} ms. Missing {names_missing}"
            )
        print("Could not find all object names, retrying", file=sys.stderr)
        time.sleep(PAUSE_S)


def attributes_of(beans: dict[str, dict[str, Any]], wanted: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """(MBean:attribute, value) of what is reported."""
    for name, attributes in beans.items():
        for attribute, value in attributes.items():
            if not wanted or attribute in wanted:
                yield f"{name}:{attribute}", value


def report(style: str, keys: Sequence[str], values: dict[str, Any]) -> None:
    """Print one report."""
    if style == "original":
        print(",".join(str(values[key]) for key in keys), flush=True)
        return
    pattern = {"properties": "{}={}", "csv": '{},"{}"', "tsv": "{}\t{}"}[style]
    print("\n".join(pattern.format(key, values[key]) for key in keys), flush=True)


def time_text(java_format: str | None) -> str:
    """The time now, in ms or in a format of Java's."""
    if java_format is None:
        return str(time.time_ns() // 1_000_000)
    now = datetime.now().astimezone()
    text = java_format.replace("SSS", f"{now.microsecond // 1000:03d}")
    fields = "|".join(sorted(JAVA_FIELDS, key=len, reverse=True))
    return now.strftime(re.sub(fields, lambda match: JAVA_FIELDS[match[0]], text))
