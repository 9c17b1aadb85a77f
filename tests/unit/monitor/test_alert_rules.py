"""Files of alert rules: what they say, and every mistake with its line and what is allowed."""

from __future__ import annotations

import pytest

from barnabas.monitor.alerts.rules import KINDS, RulesError, parse_rules

GOOD = """
notify:
  hook: {kind: webhook, url: "http://localhost:9/x", token: secret}
  mail: {kind: smtp, server: "localhost:25", from: a@b.example, to: [c@d.example], tls: none}
  log: {kind: topic, topic: alerts}
quiet:
  - {from: "22:00", to: "06:00", days: [mon, tue], zone: Europe/Berlin, below: critical}
rules:
  - {name: behind, kind: lag, group: "billing*", above: 1000, for: 5m, severity: critical, notify: [hook, log]}
  - name: late
    kind: time_lag
    above: 10m
"""


def mistakes(text: str) -> list[tuple[int, str]]:
    with pytest.raises(RulesError) as caught:
        parse_rules(text)
    return [(mistake.line, mistake.text) for mistake in caught.value.mistakes]


def test_a_file_is_read_with_defaults() -> None:
    rules = parse_rules(GOOD)
    behind, late = rules.rules
    assert (behind.kind, behind.values, behind.for_s, behind.line) == (
        "lag",
        {"group": ("billing*",), "above": 1000.0},
        300.0,
        9,
    )
    assert (behind.severity, behind.notify, behind.clusters) == ("critical", ("hook", "log"), ("*",))
    assert (late.for_s, late.severity, late.values["above"], late.notify) == (60.0, "warning", 600.0, ())
    assert [receiver.kind for receiver in rules.receivers] == ["webhook", "smtp", "topic"]
    (quiet,) = rules.quiet
    assert (quiet.start, quiet.end, quiet.days, str(quiet.zone)) == (1320, 360, {0, 1}, "Europe/Berlin")


def test_all_mistakes_are_reported_with_lines_and_what_is_allowed() -> None:
    text = """rules:
  - name: one
    kind: lagg
  - name: two
    kind: lag
    above: many
    grup: x
  - name: two
    kind: time_lag
    above: 10
    notify: [nobody]
    severity: bad
  - kind: offline
  - just a text
notify:
  hook: {kind: webhook, url: "file:///etc/passwd"}
  mail: {kind: pigeon}
quiet:
  - {from: "25:00", to: "06:00", zone: Mars/Crater}
extra: 1
"""
    complaints = mistakes(text)
    by_line: dict[int, list[str]] = {}
    for line, complaint in complaints:
        by_line.setdefault(line, []).append(complaint)
    assert f"allowed: {', '.join(KINDS)}" in by_line[2][0]
    assert "between 0 and" in by_line[6][0]
    assert "did you mean 'group'" in by_line[7][0]
    assert any("rule of this name already" in words for words in by_line[8])
    assert "duration such as 30s" in by_line[10][0]
    assert any("notify names 'nobody'; there are: hook" in words for words in by_line[8])
    assert "allowed: info, warning, critical" in by_line[12][0]
    assert any("needs 'name'" in words for words in by_line[13])
    assert any("must be a mapping" in words for words in by_line[14])
    assert "must begin with http" in by_line[16][0]
    assert "allowed: webhook, smtp, topic" in by_line[17][0]
    assert any('such as "22:00"' in words for words in by_line[19])
    assert any("no time zone" in words for words in by_line[19])
    assert "allowed: rules, notify, quiet" in by_line[20][0]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("a: [1", 1),
        ("- 1", 1),
        ("rules: []", 1),
        ("notify: {}\nrules: {}", 2),
        ("rules:\n- {name: a, name: b, kind: offline}\nnotify: {}", 2),
        ("rules:\n- {name: a, kind: [1]}\nnotify: {}", 2),
        ("rules:\n- {? [1] : 2, kind: offline, name: x}\nnotify: {}", 2),
        ("[" * 5000, 1),
        ("rules: &a [*a]", 1),
    ],
)
def test_nonsense_is_refused_with_a_line(text: str, line: int) -> None:
    assert mistakes(text)[0][0] == line
