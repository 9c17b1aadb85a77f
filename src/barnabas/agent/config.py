"""The agent's configuration file: what it may contain, and what is made of it.

SHAPE declares every entry once: files are checked by it, with line numbers, and `barnabas agent schema` prints it as JSON
Schema for editors.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from barnabas.agent.assembly import Recipe
from barnabas.agent.containers import DEFAULT_FILES
from barnabas.agent.events import EventFormat, TimeRule, wrong_names
from barnabas.agent.multiline import LINES_MAX, PRESETS, TIMEOUT_SECONDS, Multiline
from barnabas.agent.receivers.receiver import Tls
from barnabas.agent.receivers.sources import SPOOL_MB, Source
from barnabas.agent.running import Pace
from barnabas.agent.state import default_folder
from barnabas.agent.watcher import Looks
from barnabas.pipelines.entries.document import Item, duration_seconds, load
from barnabas.pipelines.entries.shapes import (
    Choice,
    Duration,
    EntryShape,
    Flag,
    Group,
    Matching,
    Named,
    Number,
    Schema,
    Several,
    Text,
)
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.terminal.errors import UsageError

NAME: Final = r"[A-Za-z0-9._-]{1,100}"
OWN_HEADERS: Final = ("file", "position", "end")
"""Names of headers that the agent itself sets."""
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

MULTILINE: Final = Group(
    {
        "preset": Choice([*PRESETS], "stack traces of this language"),
        "continues": Text("a regular expression: a line that matches belongs to the one before it"),
        "starts": Text("a regular expression: only a line that matches begins a record"),
        "indented": Flag("true: a line that begins with a blank or a tab belongs to the one before it"),
        "lines_max": Number(f"a record that has more lines continues in another one (default {LINES_MAX})"),
        "timeout": Duration("how long a record waits for more lines (default 5 seconds)"),
    },
    "records of several lines",
    one_of=("preset", "continues", "starts", "indented"),
)
LIMITS: Final = Group(
    {
        "bytes_per_second": Number("how much is read at most"),
        "lines_per_second": Number("how many lines are read at most"),
        "memory_mb": Number("how much may wait for the broker in memory (default 4)"),
    },
    "limits of this input",
)
COMMON: Final[Mapping[str, EntryShape]] = {
    "name": Matching(
        NAME, "a name of letters, digits, '.', '_' and '-'", "what the input is called; default: its topic"
    ),
    "topic": Text("where its records go"),
    "encoding": Text(
        "of the lines, as Python calls it: latin-1, cp1252, utf-16-le, gb18030 ...; records are UTF-8"
    ),
    "multiline": MULTILINE,
    "include": Several(Text(), "regular expressions: only records that one of them matches are sent"),
    "exclude": Several(Text(), "regular expressions: records that one of them matches are left out"),
    "output": Choice(
        ("text", "json"), "the line itself (default), or a JSON object like Filebeat's with ECS names"
    ),
    "time": Group(
        {
            "pattern": Text(
                "a regular expression: its first group, or what it matches, is the time of the line"
            ),
            "format": Text("of the time, as strptime has it: '%d/%b/%Y:%H:%M:%S %z'; default: ISO 8601"),
        },
        "the time in a line becomes @timestamp",
        required=("pattern",),
    ),
    "fields": Named(Text(), "own fields: headers of records that are text, `fields` in JSON"),
    "tags": Several(Text(), "words under `tags` in JSON"),
    "key": Text("none (default), file, host, or a text with {host}, {path}, {file}, {fields.NAME}"),
    "key_pattern": Text("a regular expression for the line; `key` may name its groups: {1}, {NAME}"),
    "headers": Flag(
        "whether records say where they come from, which prevents repeats after a kill (default true)"
    ),
    "compression": Choice(CODECS, "of batches (default lz4)"),
    "dead_letters": Text("a topic for lines that are refused: too large, or not in the encoding"),
    "limits": LIMITS,
}
FILES: Final[Mapping[str, EntryShape]] = {
    "files": Several(Text(), "names and patterns of files", least=1),
    "exclude_files": Several(
        Text(), "regular expressions: files whose path one of them matches are left out"
    ),
    "start_at": Choice(("beginning", "end"), "where files begin that are there at the first start"),
    "ignore_older": Duration("files that were not written for so long are left out"),
    "close_idle": Duration("files that have not grown for so long are closed until they do"),
    "unpack": Flag("true: compressed files (gzip, bzip2, xz, zstd) are read, each once"),
}
ADDRESS: Final = Matching(
    r"[^:\s]*:\d{1,5}|\[[0-9a-fA-F:]*\]:\d{1,5}", "HOST:PORT", "the address to listen at"
)
TLS: Final = Group(
    {
        "certificate": Text("a file in PEM"),
        "key": Text("a file in PEM"),
        "authority": Text("a file in PEM: senders need a certificate that it has signed"),
    },
    "TLS of a listener",
    required=("certificate", "key"),
)
RECEIVED: Final[Mapping[str, EntryShape]] = {
    "stdin": Flag("true: lines of standard input, up to its end"),
    "journald": Group(
        {
            "units": Several(Text(), "only entries of these units"),
            "directory": Text("the folder of the journal's files; default: this machine's journal"),
            "start_at": Choice(("beginning", "end"), "where to begin at the first start"),
        },
        "the entries of systemd's journal",
    ),
    "syslog": Group(
        {"udp": ADDRESS, "tcp": ADDRESS, "tls": TLS}, "a listener for syslog (RFC 3164, RFC 5424)"
    ),
    "lumberjack": Group(
        {"listen": ADDRESS, "tls": TLS}, "a listener for Filebeat and Logstash", required=("listen",)
    ),
    "otlp": Group(
        {"listen": ADDRESS, "grpc": ADDRESS, "tls": TLS},
        "listeners for OpenTelemetry's logs, over HTTP and gRPC",
    ),
}
CONTAINERS: Final = Several(
    Text(), "patterns of files that Docker or CRI writes; true: where they are by default"
)
INPUT: Final = Group(
    {
        **FILES,
        "containers": CONTAINERS,
        **RECEIVED,
        **COMMON,
        "spool_mb": Number(f"how much of what is received may wait on the disk (default {SPOOL_MB})"),
    },
    "one input",
    required=("topic",),
    one_of=("files", "containers", *RECEIVED),
)
SHAPE: Final = Group(
    {
        "bootstrap": Text("the cluster: HOST:PORT,...; default: -b, BARNABAS_BOOTSTRAP or the profile"),
        "properties": Named(
            Text(), "properties of the client: TLS and logins, compression.type", guarded=True
        ),
        "state": Text("the folder where positions are kept; default: ~/.local/state/barnabas/agent"),
        "listen": Text("HOST:PORT where metrics, health and status are served; default: nowhere"),
        "fields": Named(Text(), "own fields of all inputs"),
        "inputs": Several(INPUT, "what is shipped where", least=1),
    },
    "the configuration of barnabas agent",
    required=("inputs",),
)


@dataclass(frozen=True, slots=True)
class Input:
    """One input as the file describes it."""

    name: str
    topic: str
    files: tuple[str, ...]
    recipe: Recipe
    looks: Looks
    pace: tuple[int, int]
    key: str
    with_headers: bool
    codec: str
    dead_letters: str
    memory_mb: int
    headers: tuple[tuple[str, bytes], ...]
    source: Source | None = None
    """Where it receives from; None for files."""

    def settings(self) -> dict[str, Any]:
        """Properties of its producer."""
        kilobytes = self.memory_mb * 1024
        return {"compression.type": self.codec, "queue.buffering.max.kbytes": kilobytes}

    def new_pace(self) -> Pace:
        """Its limits, before anything was read."""
        return Pace(*self.pace)


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """A configuration file. bootstrap, listen: None if it does not say."""

    path: Path
    inputs: tuple[Input, ...]
    bootstrap: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    state: Path = field(default_factory=default_folder)
    listen: str | None = None


def read_config(path: Path) -> AgentConfig:
    """The configuration in a file. Raises UsageError with its name and the line of the mistake."""
    try:
        root = load(path)
        return _config(replace(root, what="the configuration"), path)
    except PipelineError as error:
        raise UsageError(str(error)) from None


def schema() -> Schema:
    """The file's JSON Schema."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "barnabas agent",
        **SHAPE.schema(),
    }


def _config(root: Item, path: Path) -> AgentConfig:
    entries = SHAPE.open(root)
    shared = entries["fields"].text_map() if "fields" in entries else {}
    inputs: dict[str, Input] = {}
    for item in entries["inputs"].items():
        input_config = _input(INPUT.open(item), item, shared)
        if input_config.name in inputs:
            item.fail(f"there are two inputs called {input_config.name!r}; give each its own `name`")
        inputs[input_config.name] = input_config
    if not inputs:
        entries["inputs"].fail("inputs is empty, so nothing would be shipped")

    def text(name: str) -> str | None:
        return entries[name].text() if name in entries else None

    state = text("state")
    return AgentConfig(
        path,
        tuple(inputs.values()),
        text("bootstrap"),
        entries["properties"].text_map() if "properties" in entries else {},
        default_folder() if state is None else Path(state).expanduser(),
        text("listen"),
    )


def _input(entries: Mapping[str, Item], item: Item, shared: Mapping[str, str]) -> Input:
    topic = entries["topic"].text()
    fields = {**shared, **(entries["fields"].text_map() if "fields" in entries else {})}
    is_json = "output" in entries and entries["output"].text() == "json"
    wrong = [name for name in fields if name in OWN_HEADERS]
    if wrong and not is_json:
        item.fail(f"a field cannot be called {wrong[0]!r}: the agent sets a header of this name itself")
    dead_letters = entries["dead_letters"].text() if "dead_letters" in entries else ""
    encoding, newline = _encoding(entries.get("encoding"))
    if dead_letters and is_json:
        encoding = encoding or "utf-8"
    limits = LIMITS.open(entries["limits"]) if "limits" in entries else {}
    source = _source(entries, item)
    is_container = "containers" in entries
    if source is not None and source.kind != "stdin":
        for name in ("multiline", "encoding", "unpack", "start_at", "ignore_older", "exclude_files"):
            if name in entries:
                entries[name].fail(f"{name} belongs to files; {source.kind} receives whole events")
    shape = EventFormat(
        is_json,
        fields,
        entries["tags"].texts() if "tags" in entries else (),
        *_key(entries, fields),
        kind="filestream" if source is None else source.kind,
    )
    recipe = Recipe(
        shape,
        encoding,
        _multiline(entries.get("multiline"), newline),
        _patterns(entries.get("include")),
        _patterns(entries.get("exclude")),
        refuses=bool(dead_letters),
        container=is_container,
        spooled=source is not None and source.kind != "stdin",
        time=_time(entries, is_json),
    )
    looks = Looks(
        tuple(re.compile(pattern.pattern.decode()) for pattern in _patterns(entries.get("exclude_files"))),
        "start_at" in entries and entries["start_at"].text() == "end",
        _seconds(entries.get("ignore_older")),
        _seconds(entries.get("close_idle")),
        "unpack" in entries and entries["unpack"].flag(),
        newline,
    )

    def limit(name: str, default: int = 0) -> int:
        return limits[name].number() if name in limits else default

    return Input(
        entries["name"].text() if "name" in entries else topic,
        topic,
        _files(entries),
        recipe,
        looks,
        (limit("bytes_per_second"), limit("lines_per_second")),
        entries["key"].text() if "key" in entries else "none",
        entries["headers"].flag() if "headers" in entries else True,
        entries["compression"].text() if "compression" in entries else "lz4",
        dead_letters,
        limit("memory_mb", 4),
        tuple(shape.headers()),
        source,
    )


def _files(entries: Mapping[str, Item]) -> tuple[str, ...]:
    if "containers" in entries:
        texts = entries["containers"].texts()
        return DEFAULT_FILES if texts == ("true",) else texts
    return entries["files"].texts() if "files" in entries else ()


def _source(entries: Mapping[str, Item], item: Item) -> Source | None:
    """What is received from; None for files."""
    kind = next((kind for kind in RECEIVED if kind in entries), None)
    if kind is None:
        if "spool_mb" in entries:
            entries["spool_mb"].fail("spool_mb belongs to what is received; files wait where they are")
        return None
    if kind == "stdin":
        if not entries["stdin"].flag():
            item.fail("stdin is false, so this input reads nothing")
        return Source(kind)
    inner = entries[kind].mapping()
    if kind == "syslog" and not ("udp" in inner or "tcp" in inner):
        entries[kind].fail("syslog needs udp: HOST:PORT, tcp: HOST:PORT, or both")
    if kind == "otlp" and not ("listen" in inner or "grpc" in inner):
        entries[kind].fail("otlp needs listen: HOST:PORT for HTTP, grpc: HOST:PORT, or both")
    tls = None
    if "tls" in inner:
        files = {name: value.text() for name, value in inner["tls"].mapping().items()}
        tls = Tls(files["certificate"], files["key"], files.get("authority", ""))
    texts = {name: inner[name].text() for name in ("udp", "tcp", "listen", "grpc") if name in inner}
    return Source(
        kind,
        **texts,
        tls=tls,
        units=inner["units"].texts() if "units" in inner else (),
        folder=inner["directory"].text() if "directory" in inner else "",
        at_end="start_at" in inner and inner["start_at"].text() == "end",
        spool_mb=entries["spool_mb"].number() if "spool_mb" in entries else SPOOL_MB,
    )


def _key(
    entries: Mapping[str, Item], fields: Mapping[str, str]
) -> tuple[str | None, re.Pattern[bytes] | None]:
    """The text of a key that is made for each record, and the pattern for it; None if all records of a file have the
    same simple key."""
    pattern = _pattern(entries["key_pattern"]) if "key_pattern" in entries else None
    if "key" not in entries:
        if pattern is not None:
            entries["key_pattern"].fail("key_pattern needs a key that names its groups, for example '{1}'")
        return None, None
    key = entries["key"].text()
    if "{" not in key and "}" not in key and pattern is None:
        return None, None
    why = wrong_names(key, [*fields], pattern)
    if why:
        entries["key"].fail(f"key: {why}")
    return key, pattern


def _multiline(item: Item | None, newline: bytes) -> Multiline | None:
    if item is None:
        return None
    entries = MULTILINE.open(item)
    if len(newline) > 1:
        item.fail("multiline cannot be used with UTF-16")
    timeout = _seconds(entries.get("timeout"))
    rule = Multiline(
        lines_max=entries["lines_max"].number() if "lines_max" in entries else LINES_MAX,
        timeout_s=TIMEOUT_SECONDS if timeout is None else timeout,
    )
    if "preset" in entries:
        return replace(rule, preset=entries["preset"].text())
    if "indented" in entries:
        return rule if entries["indented"].flag() else None
    is_start = "starts" in entries
    return replace(rule, pattern=_pattern(entries["starts" if is_start else "continues"]), negated=is_start)


def _time(entries: Mapping[str, Item], is_json: bool) -> TimeRule | None:
    """Where in a line its time is; None if that is not said."""
    if "time" not in entries:
        return None
    if not is_json:
        entries["time"].fail("time needs `output: json`; a record that is text has no @timestamp")
    inner = entries["time"].mapping()
    return TimeRule(_pattern(inner["pattern"]), inner["format"].text() if "format" in inner else "")


def _encoding(item: Item | None) -> tuple[str, bytes]:
    """The name of a codec (empty for UTF-8, which is sent as it is) and the bytes of a newline in it."""
    if item is None:
        return "", b"\n"
    try:
        name = codecs.lookup(item.text()).name
        newline = "\n".encode(name)
    except (LookupError, UnicodeError):
        item.fail(
            f"encoding {item.text()!r} is unknown; examples: utf-8, latin-1, cp1252, utf-16-le, gb18030"
        )
    if name == "utf-16":
        name, newline = "utf-16-le", b"\n\0"
    if newline not in (b"\n", b"\n\0", b"\0\n"):
        item.fail(f"files in {item.text()!r} cannot be cut into lines")
    return ("" if name == "utf-8" else name), newline


def _seconds(item: Item | None) -> float | None:
    return None if item is None else duration_seconds(item.text())


def _pattern(item: Item) -> re.Pattern[bytes]:
    try:
        return re.compile(item.text().encode())
    except re.error as error:
        item.fail(f"{item.what}: {item.text()!r} is not a regular expression: {error}")


def _patterns(item: Item | None) -> tuple[re.Pattern[bytes], ...]:
    return () if item is None else tuple(_pattern(row) for row in item.items())
