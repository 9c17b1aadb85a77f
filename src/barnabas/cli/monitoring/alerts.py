"""`barnabas alerts`: check a file of rules, list what is wrong, send a test to receivers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from barnabas.cli.monitoring.asking import DEFAULT_URL, MonitorUrl, ask
from barnabas.terminal.administering import options_of
from barnabas.terminal.connection import connect
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, CliError
from barnabas.terminal.files import read_text
from barnabas.terminal.options import AsJson, Bootstrap, Properties
from barnabas.terminal.output import count_of, print_json, print_table
from barnabas.terminal.runner import example, new_app, say_error

if TYPE_CHECKING:
    from barnabas.monitor.alerts.rules import AlertFile

app = new_app("Check rules of alerts; list alerts; test receivers.")

NO_RECEIVER: Final = "the file has no receivers to test"
RulesFile = Annotated[Path, typer.Argument(metavar="FILE", show_default=False, help="A file of alert rules.")]


def checked(file: Path) -> AlertFile:
    """The rules of a file. Mistakes are said one a line. Raises CliError."""
    from barnabas.monitor.alerts.rules import RulesError, parse_rules

    try:
        return parse_rules(read_text(file))
    except RulesError as error:
        for mistake in error.mistakes:
            say_error("barnabas alerts", f"{file} line {mistake.line}: {mistake.text}")
        raise CliError(f"{file} has {count_of(len(error.mistakes), 'mistake')}") from None


@app.command(epilog=example("barnabas alerts check alerts.yaml"))
def check(file: RulesFile, json: AsJson = False) -> int:
    """Check a file of alert rules, and list the rules; mistakes are reported with their lines."""
    rules = checked(file)
    rows = [
        {
            "rule": rule.name,
            "kind": rule.kind,
            "severity": rule.severity,
            "for_seconds": rule.for_s,
            "notify": list(rule.notify) or [receiver.name for receiver in rules.receivers],
        }
        for rule in rules.rules
    ]
    if json:
        print_json(rows)
    else:
        print_table(
            ("RULE", "KIND", "SEVERITY", "FOR SECONDS", "NOTIFY"), [list(row.values()) for row in rows]
        )
    return EXIT_OK


@app.command("list", epilog=example("barnabas alerts list", "barnabas alerts list --json"))
def list_alerts(monitor: MonitorUrl = DEFAULT_URL, json: AsJson = False) -> int:
    """List the alerts of a monitor, the worst first."""
    answer = ask(monitor, "/v1/alerts")
    order = {"critical": 0, "warning": 1, "info": 2}
    alerts = sorted(answer["alerts"], key=lambda row: (row["state"], order[row["severity"]], row["since"]))
    if json:
        print_json({**answer, "alerts": alerts})
        return EXIT_OK
    names = ("state", "severity", "cluster", "rule", "since", "text")
    print_table([name.upper() for name in names], [[row[name] for name in names] for row in alerts])
    for row in answer["receivers"]:
        if row["last_error"]:
            print(f"{row['name']}: messages do not arrive: {row['last_error']}")
    return EXIT_OK


@app.command(
    "test",
    epilog=example("barnabas alerts test alerts.yaml", "barnabas alerts test alerts.yaml --notify mail"),
)
def try_receivers(
    file: RulesFile,
    notify: Annotated[
        list[str] | None,
        typer.Option(
            "--notify", metavar="RECEIVER", help="Only this receiver; may be repeated.", show_default=False
        ),
    ] = None,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    json: AsJson = False,
) -> int:
    """Send a test message to the receivers of a file, and show what each answers."""
    rules = checked(file)
    known = {receiver.name: receiver for receiver in rules.receivers}
    for name in notify or ():
        if name not in known:
            raise CliError(f"{file} has no receiver {name!r}; it has: {', '.join(known) or 'none'}")
    rows = [
        {"receiver": name, "kind": known[name].kind, "result": _tried(known[name], bootstrap, properties)}
        for name in dict.fromkeys(notify or known)
    ]
    if not rows:
        raise CliError(NO_RECEIVER)
    if json:
        print_json(rows)
    else:
        print_table(("RECEIVER", "KIND", "RESULT"), [list(row.values()) for row in rows])
    return EXIT_OK if all(row["result"] == "delivered" for row in rows) else EXIT_FAILED


def _tried(receiver: Any, bootstrap: str | None, properties: list[str] | None) -> str:
    """`delivered`, or why not."""
    from barnabas.monitor.alerts.conditions import Finding
    from barnabas.monitor.alerts.engine import Alert, Cause, Key, Message
    from barnabas.monitor.alerts.rules import Rule
    from barnabas.monitor.alerts.sending import SENDERS, SendError

    now_ms = time.time_ns() // 1_000_000
    rule = Rule("test", "test", ("*",), 0.0, 0.0, "info", (), {}, 0)
    text = "this is a test of `barnabas alerts test`; nothing is wrong"
    alert = Alert(Key("test", "test", "test"), rule, Finding("test", 0, text), now_ms, now_ms)
    message = Message("firing", Cause("test", "test"), "info", (alert,), (receiver.name,), now_ms)
    clusters = {}
    if receiver.kind == "topic":
        name = receiver.values["cluster"] or "local"
        clusters = {name: options_of(connect(bootstrap, properties))}
    try:
        SENDERS[receiver.kind](receiver.values, message, clusters)
    except SendError as error:
        return str(error)
    return "delivered"
