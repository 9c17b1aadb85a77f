"""`barnabas reporting`: access points and web hooks that lead to topics."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Annotated, Any, Final

import typer

from barnabas.http_client import Address, BadAddress, NoAnswer, without_login
from barnabas.http_client import ask as ask_service
from barnabas.services.command import add_start
from barnabas.services.rows.reporting import REPORTING
from barnabas.terminal.connection import connect
from barnabas.terminal.errors import EXIT_OK, CliError, UsageError
from barnabas.terminal.options import AsJson, AsJsonAlready, Bootstrap, Properties
from barnabas.terminal.output import print_json, print_table
from barnabas.terminal.runner import example, new_app

app = new_app(REPORTING.about)
add_start(app, REPORTING)

DEFAULT_LISTEN: Final = "127.0.0.1:8086"
DEFAULT_URL: Final = "http://localhost:8086"
TIMEOUT_S: Final = 60
FIND_S: Final = 15.0

Url = Annotated[
    str,
    typer.Option("-u", "--url", envvar="BARNABAS_REPORTING", metavar="URL", help="The service to talk to."),
]
PointId = Annotated[str, typer.Argument(metavar="ID", show_default=False)]


@app.callback(help=REPORTING.about)
def reporting() -> None:
    """What all its commands share."""


def ask(url: str, action: str, body: dict[str, Any]) -> dict[str, Any]:
    """The answer to an action. Raises CliError."""
    address = Address(url if "://" in url else f"http://{url}")
    headers = {"Content-Type": "application/json", "X-TC-Action": action}
    try:
        answer = ask_service(address, "POST", "/", json.dumps(body).encode(), headers, timeout_s=TIMEOUT_S)
    except BadAddress:
        raise UsageError(
            f"-u {without_login(url)!r} is not the address of a service, for example {DEFAULT_URL}"
        ) from None
    except NoAnswer as error:
        raise CliError(
            f"no service answers at {without_login(url)}: {error}; start one with `barnabas reporting start`, or name "
            "another with -u"
        ) from None
    if answer.status == HTTPStatus.UNAUTHORIZED:
        raise CliError(f"{without_login(url)} asks for a login: write -u https://USER:PASSWORD@HOST:PORT")
    try:
        response = json.loads(answer.body)["Response"]
    except (ValueError, KeyError, TypeError):
        raise CliError(f"{without_login(url)} does not answer as reporting does") from None
    if "Error" in response:
        raise CliError(f"{response['Error'].get('Message')} ({response['Error'].get('Code')})")
    answered: dict[str, Any] = response
    return answered


def _say(action: str, url: str, point_id: str, done: str, as_json: bool) -> int:
    answer = ask(url, action, {"DataHubId": point_id})
    if as_json:
        print_json({name: value for name, value in answer.items() if name != "RequestId"})
    else:
        print(f"{done} {point_id}")
    return EXIT_OK


@app.command(epilog=example("barnabas reporting create clicks --name 'clicks of the shop'"))
def create(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    name: Annotated[str, typer.Option(metavar="NAME", help="What it is for. Default: the topic.")] = "",
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Make an access point that leads to a topic, and print its id."""
    answer = ask(url, "CreateAccessPoint", {"Topic": topic, "Name": name})
    if as_json:
        print_json({name: value for name, value in answer.items() if name != "RequestId"})
    else:
        print(answer["DataHubId"])
    return EXIT_OK


@app.command("list", epilog=example("barnabas reporting list"))
def list_all(url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """List access points."""
    rows = ask(url, "DescribeAccessPoints", {})["AccessPoints"]
    if as_json:
        print_json(rows)
    else:
        shown = [(row["DataHubId"], row["Topic"], row["Status"].lower(), row["Name"]) for row in rows]
        print_table(("ID", "TOPIC", "STATUS", "NAME"), shown)
    return EXIT_OK


@app.command(epilog=example("barnabas reporting pause datahub-1f2e3d4c"))
def pause(point_id: PointId, url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Refuse messages until the access point is resumed."""
    return _say("PauseAccessPoint", url, point_id, "paused", as_json)


@app.command(epilog=example("barnabas reporting resume datahub-1f2e3d4c"))
def resume(point_id: PointId, url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Take messages again."""
    return _say("ResumeAccessPoint", url, point_id, "resumed", as_json)


@app.command(epilog=example("barnabas reporting delete datahub-1f2e3d4c"))
def delete(point_id: PointId, url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Delete an access point; its topic stays."""
    return _say("DeleteAccessPoint", url, point_id, "deleted", as_json)


@app.command(
    epilog=example("barnabas reporting find datahub-1f2e3d4c:clicks:0:2:1648185961342:1648185961398")
)
def find(
    message_id: Annotated[str, typer.Argument(metavar="MESSAGE_ID", show_default=False)],
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    as_json: AsJsonAlready = False,
) -> int:
    """Show the message that a MessageId names."""
    from confluent_kafka import TopicPartition

    parts = message_id.split(":")
    if len(parts) != 6 or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts[2:]):
        raise UsageError(f"{message_id!r} is not ID:TOPIC:PARTITION:OFFSET:RECEIVED:STORED")
    topic, partition, offset = parts[1], int(parts[2]), int(parts[3])
    consumer = connect(bootstrap, properties).consumer(
        {"group.id": "reporting-find", "enable.auto.commit": False, "auto.offset.reset": "error"}
    )
    try:
        consumer.assign([TopicPartition(topic, partition, offset)])
        message = consumer.poll(FIND_S)
    finally:
        consumer.close()
    if message is None or message.error() is not None or message.offset() != offset:
        reason = "" if message is None or message.error() is None else f": {message.error().str()}"
        raise CliError(f"{topic}-{partition} has no message at offset {offset} (any more){reason}")
    row = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": message.timestamp()[1],
        "key": None if message.key() is None else message.key().decode("utf-8", "replace"),
        "body": (message.value() or b"").decode("utf-8", "replace"),
    }
    print_json(row)
    return EXIT_OK
