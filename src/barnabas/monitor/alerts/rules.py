"""The file of alert rules: kinds of rules and of receivers, declared once, and what a file says about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from zoneinfo import ZoneInfo

import yaml

from barnabas.monitor.alerts.document import (
    Field,
    Mistake,
    Reader,
    choice,
    choices,
    clock,
    duration,
    entries,
    items,
    mapping,
    number,
    text,
    texts,
)

COUNT_MAX: Final = 1e15
SEVERITIES: Final = ("info", "warning", "critical")
DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
ANY: Final = "*"
FOR_S: Final = 60.0
EVERY_S: Final = 4 * 3600.0

_PATTERN: Final = Field(texts, default=(ANY,))
_COUNT: Final = number(0, COUNT_MAX)
_COMMON: Final = {
    "name": Field(text, is_required=True),
    "kind": Field(text, is_required=True),
    "cluster": _PATTERN,
    "for": Field(duration, default=FOR_S),
    "every": Field(duration, default=EVERY_S),
    "severity": Field(choice(*SEVERITIES), default="warning"),
    "notify": Field(texts, default=()),
}
"""What every rule may say. for: how long it must be so; every: time between repetitions; notify: empty for all receivers."""

KINDS: Final[Mapping[str, Mapping[str, Field]]] = {
    "lag": {"group": _PATTERN, "above": Field(_COUNT, is_required=True)},
    "time_lag": {"group": _PATTERN, "above": Field(duration, is_required=True)},
    "verdict": {
        "group": _PATTERN,
        "status": Field(choices("WARN", "STOP", "STALL", "REWIND"), default=("STOP", "STALL")),
    },
    "no_consumer": {"group": _PATTERN},
    "under_replicated": {"topic": _PATTERN},
    "offline": {"topic": _PATTERN},
    "broker_away": {},
    "broker_restarted": {},
    "unreachable": {},
    "disk_full": {"within": Field(duration, default=24 * 3600.0)},
    "dead_letters": {
        "topic": Field(texts, is_required=True),
        "above": Field(_COUNT, default=0.0),
        "window": Field(duration, default=600.0),
    },
    "hot_partition": {
        "topic": _PATTERN,
        "times": Field(number(1, 1e6), default=3.0),
        "above": Field(_COUNT, default=100.0),
    },
    "certificate": {"address": Field(texts, default=()), "within": Field(duration, default=14 * 86_400.0)},
    "failed_pipeline": {"server": Field(text, is_required=True), "pipeline": _PATTERN},
    "mirror_lag": {"link": _PATTERN, "topic": _PATTERN, "above": Field(_COUNT, is_required=True)},
    "mirror_time_lag": {"link": _PATTERN, "topic": _PATTERN, "above": Field(duration, is_required=True)},
    "mirror_failed": {"link": _PATTERN, "topic": _PATTERN},
    "search": {
        "topic": Field(text, is_required=True),
        "query": Field(text, is_required=True),
        "above": Field(_COUNT, default=0.0),
        "window": Field(duration, default=300.0),
    },
}
"""What each kind of rule may say besides. above: lag in records; time_lag as a duration; dead_letters: new records in the
window; hot_partition: records per second, so that a quiet topic has no hot partition; search: lines of a log in the window,
which `barnabas logs watch` judges, not the monitor."""

RECEIVERS: Final[Mapping[str, Mapping[str, Field]]] = {
    "webhook": {"url": Field(text, is_required=True), "token": Field(text)},
    "smtp": {
        "server": Field(text, is_required=True),
        "from": Field(text, is_required=True),
        "to": Field(texts, is_required=True),
        "tls": Field(choice("none", "starttls", "tls"), default="starttls"),
        "user": Field(text),
        "password": Field(text),
    },
    "topic": {"topic": Field(text, is_required=True), "cluster": Field(text)},
}
"""What each kind of receiver may say. cluster: which one's topic; by default the first of the monitor."""
_QUIET: Final = {
    "from": Field(clock, is_required=True),
    "to": Field(clock, is_required=True),
    "days": Field(choices(*DAYS), default=DAYS),
    "zone": Field(text, default="UTC"),
    "below": Field(choice(*SEVERITIES), default="critical"),
}
"""Quiet times: days are those on which they begin; messages below this severity wait until they end."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. values: of the fields of its kind. line: where it stands."""

    name: str
    kind: str
    clusters: tuple[str, ...]
    for_s: float
    every_s: float
    severity: str
    notify: tuple[str, ...]
    values: Mapping[str, Any]
    line: int


@dataclass(frozen=True, slots=True)
class Receiver:
    """Where messages go. values: of the fields of its kind."""

    name: str
    kind: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Quiet:
    """A time of the day without messages. start, end: minutes since midnight; days: 0 is Monday."""

    start: int
    end: int
    days: frozenset[int]
    zone: ZoneInfo
    below: str


@dataclass(frozen=True, slots=True)
class AlertFile:
    """What a file says."""

    rules: tuple[Rule, ...]
    receivers: tuple[Receiver, ...]
    quiet: tuple[Quiet, ...]


class RulesError(Exception):
    """A file has mistakes."""

    def __init__(self, mistakes: list[Mistake]) -> None:
        self.mistakes = sorted(mistakes)
        super().__init__("; ".join(f"line {mistake.line}: {mistake.text}" for mistake in self.mistakes))


def parse_rules(content: str) -> AlertFile:
    """What the text of a file says. Raises RulesError that names all mistakes."""
    reader = Reader()
    root = reader.root(content)
    rules: list[Rule] = []
    receivers: list[Receiver] = []
    quiet: list[Quiet] = []
    if root is None and not reader.mistakes:
        reader.mistakes.append(Mistake(1, "the file is empty; it needs 'rules' and 'notify'"))
    elif root is not None:
        sections = entries(reader, "the file", root)
        for name, (key, _) in sections.items():
            if name not in ("rules", "notify", "quiet"):
                reader.wrong(key, f"the file has no {name!r}; allowed: rules, notify, quiet")
        for name in ("rules", "notify"):
            if name not in sections:
                reader.wrong(root, f"the file needs {name!r}")
        if "notify" in sections:
            receivers = _receivers(reader, sections["notify"][1])
        if "quiet" in sections:
            quiet = [_quiet(reader, node) for node in items(reader, "quiet", sections["quiet"][1])]
        if "rules" in sections:
            names = {receiver.name for receiver in receivers}
            for node in items(reader, "rules", sections["rules"][1]):
                rules += _rule(reader, node, names, {rule.name for rule in rules})
    if reader.mistakes:
        raise RulesError(reader.mistakes)
    return AlertFile(tuple(rules), tuple(receivers), tuple(quiet))


def _word(node: yaml.Node, name: str) -> str | None:
    """A field of a mapping that decides which others there are."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == name and isinstance(value, yaml.ScalarNode):
                return str(value.value)
    return None


def _rule(reader: Reader, node: yaml.Node, receivers: set[str], taken: set[str]) -> list[Rule]:
    kind = _word(node, "kind")
    what = f"rule {_word(node, 'name') or ''}".strip()
    if kind is not None and kind not in KINDS:
        reader.wrong(node, f"{what}: kind is {kind!r}; allowed: {', '.join(KINDS)}")
        return []
    own = KINDS.get(kind or "", {})
    values = mapping(reader, what, node, {**_COMMON, **own})
    if kind is None or values["name"] is None:
        return []
    if values["name"] in taken:
        reader.wrong(node, f"{what}: there is a rule of this name already")
    for name in values["notify"]:
        if name not in receivers:
            known = ", ".join(sorted(receivers)) or "none"
            reader.wrong(node, f"{what}: notify names {name!r}; there are: {known}")
    return [
        Rule(
            values["name"],
            kind,
            values["cluster"],
            values["for"],
            values["every"],
            values["severity"],
            values["notify"],
            {name: values[name] for name in own},
            node.start_mark.line + 1,
        )
    ]


def _receivers(reader: Reader, node: yaml.Node) -> list[Receiver]:
    receivers = []
    for name, (_, value) in entries(reader, "notify", node).items():
        kind = _word(value, "kind")
        if kind is None or kind not in RECEIVERS:
            reader.wrong(value, f"notify {name}: kind is {kind!r}; allowed: {', '.join(RECEIVERS)}")
            continue
        fields = {"kind": Field(text, is_required=True), **RECEIVERS[kind]}
        values = mapping(reader, f"notify {name}", value, fields)
        url = values.get("url")
        if url is not None and not url.startswith(("http://", "https://")):
            reader.wrong(value, f"notify {name}: url must begin with http:// or https://")
        receivers.append(Receiver(name, kind, {key: one for key, one in values.items() if key != "kind"}))
    return receivers


def _quiet(reader: Reader, node: yaml.Node) -> Quiet:
    values = mapping(reader, "quiet", node, _QUIET)
    try:
        zone = ZoneInfo(values["zone"])
    except (KeyError, ValueError, OSError):
        reader.wrong(
            node, f"quiet: zone is {values['zone']!r}, which is no time zone, for example Europe/Berlin"
        )
        zone = ZoneInfo("UTC")
    days = frozenset(DAYS.index(day) for day in values["days"])
    return Quiet(values["from"] or 0, values["to"] or 0, days, zone, values["below"])
