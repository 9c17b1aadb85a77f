"""When alerts fire, are told, are repeated and are resolved; storms; quiet times. The clock is the test's own."""

from __future__ import annotations

from barnabas.monitor.alerts.conditions import Copied, Finding, Past, View, findings, full_in_s
from barnabas.monitor.alerts.engine import AGAIN_MS, GATHER_MS, Engine, Message, is_within
from barnabas.monitor.alerts.rules import AlertFile, Quiet, parse_rules
from barnabas.monitor.burrow.board import Board
from barnabas.monitor.snapshot import Disk, PartitionSeen, Snapshot

MINUTE_MS = 60_000
NIGHT_MS = 1_700_002_800_000  # 23:00 UTC on a Tuesday
FILE = parse_rules(
    """
notify:
  hook: {kind: webhook, url: "http://localhost:9/"}
  mail: {kind: smtp, server: s, from: a, to: b}
rules:
  - {name: behind, kind: lag, above: 10, for: 2m, every: 1h}
  - {name: broken, kind: under_replicated, for: 0s, severity: critical, notify: hook}
  - {name: away, kind: broker_away, for: 0s, severity: critical}
"""
)


class Stage:
    """An engine and its clock."""

    def __init__(self, file: AlertFile = FILE, start_ms: int = 0) -> None:
        self.engine = Engine(file)
        self.now_ms = start_ms

    def step(self, after_ms: int = 0, **subjects: list[str]) -> list[Message]:
        """What a look says after a time; rules that are not named find nothing."""
        self.now_ms += after_ms
        wrong = {
            name: [Finding(one, 1, one) for one in subjects.get(name, [])]
            for name in ("behind", "broken", "away")
        }
        return self.engine.step(self.now_ms, "blue", wrong)


def told(messages: list[Message]) -> list[tuple[str, str, int]]:
    return [(message.status, message.cause.name, len(message.alerts)) for message in messages]


def test_an_alert_is_pending_then_told_once_then_repeated_then_resolved() -> None:
    stage = Stage()
    assert stage.step(behind=["g"]) == []
    assert stage.step(MINUTE_MS, behind=["g"]) == []
    assert stage.engine.alerts[0].fired_ms is None
    assert stage.step(MINUTE_MS, behind=["g"]) == []  # it fires, and waits for others
    (message,) = stage.step(GATHER_MS, behind=["g"])
    assert (message.status, message.severity, message.receivers) == ("firing", "warning", ("hook", "mail"))
    for _ in range(59):
        assert stage.step(MINUTE_MS, behind=["g"]) == []
    assert told(stage.step(MINUTE_MS, behind=["g"])) == [("firing", "behind", 1)]
    (message,) = stage.step(MINUTE_MS)
    assert (message.status, message.alerts[0].resolved_ms) == ("resolved", stage.now_ms)
    assert stage.step(MINUTE_MS) == []
    assert stage.engine.alerts == []


def test_what_is_right_again_in_time_is_never_told() -> None:
    stage = Stage()
    stage.step(behind=["g"])
    assert stage.step(MINUTE_MS) == []
    assert stage.step(5 * MINUTE_MS, behind=["g"]) == []
    assert stage.step(MINUTE_MS, broken=["p"]) == []
    assert stage.step(1) == []  # it fired, and was over before it was told


def test_a_storm_is_one_message_and_more_of_it_is_told_together() -> None:
    stage = Stage()
    stage.step(broken=["p0"])
    many = [f"p{i}" for i in range(1000)]
    assert told(stage.step(GATHER_MS, broken=many)) == [("firing", "broken", 1000)]
    assert stage.step(MINUTE_MS, broken=[*many, "q"]) == []
    assert told(stage.step(AGAIN_MS, broken=[*many, "q", "r"])) == [("firing", "broken", 1002)]
    assert stage.step(MINUTE_MS, broken=["q"]) == []
    assert told(stage.step(MINUTE_MS)) == [("resolved", "broken", 1002)]


def test_what_follows_from_a_broker_that_is_away_is_told_with_it() -> None:
    stage = Stage()
    stage.step(away=["broker 2"], broken=["p0", "p1"], behind=["g"])
    messages = stage.step(GATHER_MS, away=["broker 2"], broken=["p0", "p1", "p2"], behind=["g"])
    assert {message.cause.name for message in messages} == {"broker_away"}
    assert sorted(len(message.alerts) for message in messages) == [
        1,
        3,
    ]  # to all receivers, and to the hook only
    # The broker is back before its replicas are in sync: no new message.
    assert stage.step(MINUTE_MS, broken=["p0"], behind=["g"]) == []
    assert {message.status for message in stage.step(MINUTE_MS)} == {"resolved"}


def test_a_look_that_says_nothing_about_a_rule_leaves_its_alerts() -> None:
    stage = Stage()
    stage.step(broken=["p"])
    stage.step(GATHER_MS, broken=["p"])
    assert stage.engine.step(stage.now_ms + 1000, "blue", {}) == []
    assert len(stage.engine.alerts) == 1
    assert stage.engine.step(stage.now_ms + 1000, "green", {"broken": []}) == []
    assert len(stage.engine.alerts) == 1


def test_quiet_times_hold_back_what_is_not_grave_and_end() -> None:
    file = parse_rules(
        """
notify: {hook: {kind: webhook, url: "http://localhost:9/"}}
quiet: [{from: "22:00", to: "06:00"}]
rules:
  - {name: behind, kind: lag, above: 10, for: 0s}
  - {name: broken, kind: offline, for: 0s, severity: critical}
"""
    )
    stage = Stage(file, NIGHT_MS)
    stage.step(behind=["g", "over"], broken=["p"])
    assert told(stage.step(GATHER_MS, behind=["g", "over"], broken=["p"])) == [("firing", "broken", 1)]
    assert stage.step(MINUTE_MS, behind=["g"], broken=["p"]) == []
    assert told(stage.step(7 * 60 * MINUTE_MS, behind=["g"], broken=["p"]))[0] == ("firing", "behind", 1)


def test_a_quiet_time_over_midnight_belongs_to_the_day_on_which_it_begins() -> None:
    (quiet,) = parse_rules('notify: {}\nrules: []\nquiet: [{from: "22:00", to: "06:00", days: tue}]').quiet
    hour_ms = 60 * MINUTE_MS
    assert isinstance(quiet, Quiet)
    assert [is_within(quiet, NIGHT_MS + hours * hour_ms) for hours in (-2, 0, 3, 6, 7, 24)] == [
        False, True, True, True, False, False,
    ]  # fmt: skip


def test_a_disk_is_full_along_the_line_of_its_growth() -> None:
    assert full_in_s([(0, 100)]) is None
    assert full_in_s([(minute * MINUTE_MS, 6000 - minute * 60) for minute in range(11)]) == 5400
    assert full_in_s([(minute * MINUTE_MS, 6000 + minute) for minute in range(11)]) is None


def seen_at(now_ms: int, free: int, ends: tuple[int, int], brokers: tuple[int, ...] = (1, 2)) -> Snapshot:
    parts = {("t", n): PartitionSeen(1, 2, len(brokers), end) for n, end in enumerate(ends)}
    disks = (Disk(1, "/data", 1, 10_000, free),)
    return Snapshot(now_ms, {broker: f"b{broker}:9092" for broker in brokers}, parts, disks=disks)


def test_conditions_of_looks() -> None:
    rules = {
        rule.kind: rule
        for rule in parse_rules(
            """
notify: {}
rules:
  - {name: a, kind: disk_full, within: 2h}
  - {name: b, kind: hot_partition, above: 5, times: 3}
  - {name: c, kind: dead_letters, topic: "t*", above: 50, window: 5m}
  - {name: d, kind: broker_away}
  - {name: e, kind: broker_restarted}
  - {name: f, kind: under_replicated}
  - {name: g, kind: unreachable}
"""
        ).rules
    }
    past = Past()
    for minute in range(11):
        past.note(seen_at(minute * MINUTE_MS, 6000 - minute * 60, (minute * 600, minute * 60)))
    view = View("blue", 10 * MINUTE_MS, past, Board())
    texts = {kind: [finding.text for finding in findings(rule, view)] for kind, rule in rules.items()}
    assert texts["disk_full"] == ["log dir /data of broker 1 will be full in 90 min if it grows on like this"]
    assert texts["hot_partition"] == ["t-0 gets 10 records/s, the other partitions 1 on average"]
    assert texts["dead_letters"] == ["3,300 dead letters in t within 5 min"]
    assert not any(
        texts[kind] for kind in ("broker_away", "broker_restarted", "under_replicated", "unreachable")
    )

    past.note(seen_at(11 * MINUTE_MS, 5000, (6600, 660), brokers=(1,)))
    view.now_ms = 12 * MINUTE_MS
    assert [f.text for f in findings(rules["broker_away"], view)] == ["broker 2 has been away for 60 s"]
    assert len(findings(rules["under_replicated"], view)) == 2
    past.note(Snapshot(12 * MINUTE_MS, {}, {}))  # the cluster did not answer: nothing is known of brokers
    view.trouble = "no broker answers"
    assert len(findings(rules["unreachable"], view)) == 1
    past.note(seen_at(13 * MINUTE_MS, 5000, (6600, 660)))
    assert [f.text for f in findings(rules["broker_restarted"], view)] == ["broker 2 was away and is back"]
    assert findings(rules["broker_away"], view) == []


def test_conditions_of_copied_topics() -> None:
    rules = {
        rule.kind: rule
        for rule in parse_rules(
            """
notify: {}
rules:
  - {name: a, kind: mirror_lag, topic: "ord*", above: 10}
  - {name: b, kind: mirror_time_lag, above: 30s}
  - {name: c, kind: mirror_failed, link: "e*"}
"""
        ).rules
    }
    copied = [
        Copied("east", "orders", 11, 40.0),
        Copied("east", "payments", 99, 5.0),
        Copied("east", "gone", trouble="it was made again"),
        Copied("east", "*", trouble="no broker answers"),
        Copied("west", "*", trouble="no broker answers"),
    ]
    view = View("blue", 0, Past(), Board(), copied=copied)
    texts = {kind: [finding.text for finding in findings(rule, view)] for kind, rule in rules.items()}
    assert texts == {
        "mirror_lag": ["the copy of orders by link east is 11 records behind"],
        "mirror_time_lag": [
            "the newest record in the copy of orders by link east is 40 s old, and there are newer ones"
        ],
        "mirror_failed": [
            "topic gone of link east is not copied: it was made again",
            "link east is not copied: no broker answers",
        ],
    }
