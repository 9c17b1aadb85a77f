"""Made-up records for demonstrations and tests. Record n is the same in every run with the same seed.

Options are those of Confluent's kafka-connect-datagen: `quickstart` or a schema of Avro with `arg.properties`.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from barnabas.connect.connectors import SourceConnector, SourceContext
from barnabas.connect.converters.avro_schemas import FromAvro
from barnabas.connect.errors import ConnectError, DataError, OptionError
from barnabas.connect.options import Config, ConnectorOption, Importance, Type
from barnabas.connect.records import Json, SourceRecord
from barnabas.connect.schemas import Schema

ITERATION: Final = "iteration"
BATCH: Final = 500
LETTERS: Final = "abcdefghijklmnopqrstuvwxyz0123456789"


def _record(name: str, key: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    rows = [{"name": field, "type": kind} for field, kind in fields.items()]
    return key, {"type": "record", "name": name, "namespace": "ksql", "fields": rows}


def _generator(kind: str, **how: Any) -> dict[str, Any]:
    return {"type": kind, "arg.properties": how}


QUICKSTARTS: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    "users": _record(
        "users",
        "userid",
        registertime=_generator("long", range={"min": 1487715775521, "max": 1519273364600}),
        userid=_generator("string", regex="User_[1-9]"),
        regionid=_generator("string", regex="Region_[1-9]"),
        gender=_generator("string", options=["MALE", "FEMALE", "OTHER"]),
    ),
    "pageviews": _record(
        "pageviews",
        "viewtime",
        viewtime=_generator("long", iteration={"start": 1, "step": 10}),
        userid=_generator("string", regex="User_[1-9]"),
        pageid=_generator("string", regex="Page_[1-9][0-9]"),
    ),
    "orders": _record(
        "orders",
        "orderid",
        ordertime=_generator("long", range={"min": 1487715775521, "max": 1519273364600}),
        orderid=_generator("int", iteration={"start": 0}),
        itemid=_generator("string", regex="Item_[1-9][0-9]"),
        orderunits=_generator("double", range={"min": 0.1, "max": 10.0}),
        address={
            "type": "record",
            "name": "address",
            "fields": [
                {"name": "city", "type": _generator("string", regex="City_[1-9][0-9]")},
                {"name": "state", "type": _generator("string", regex="State_[1-9][0-9]")},
                {"name": "zipcode", "type": _generator("long", range={"min": 10000, "max": 99999})},
            ],
        },
    ),
    "stock_trades": _record(
        "StockTrade",
        "symbol",
        side=_generator("string", options=["BUY", "SELL"]),
        quantity=_generator("int", range={"min": 1, "max": 5000}),
        symbol=_generator("string", options=["ZBZX", "ZJZZT", "ZTEST", "ZVV", "ZVZZT", "ZWZZT", "ZXZZT"]),
        price=_generator("int", range={"min": 5, "max": 1000}),
        account=_generator("string", regex="[A-Z]{3}[0-9]{3}"),
        userid=_generator("string", regex="User_[1-9]"),
    ),
    "clickstream": _record(
        "clickstream",
        "ip",
        ip=_generator("string", regex="111\\.1[0-9][0-9]\\.[1-9][0-9]\\.[1-9]"),
        userid=_generator("int", range={"min": 1, "max": 40}),
        _time=_generator("long", iteration={"start": 1, "step": 10}),
        request=_generator(
            "string",
            options=[
                "GET /index.html HTTP/1.1",
                "GET /site/login.html HTTP/1.1",
                "GET /images/logo.png HTTP/1.1",
            ],
        ),
        status=_generator("int", options=[200, 302, 404, 405, 407]),
        bytes=_generator("int", options=[278, 1289, 2048, 4006, 14096]),
        agent=_generator("string", options=["Mozilla/5.0", "curl/8.5"]),
    ),
    "ratings": _record(
        "ratings",
        "rating_id",
        rating_id=_generator("long", iteration={"start": 1}),
        user_id=_generator("int", range={"min": 1, "max": 20}),
        stars=_generator("int", range={"min": 1, "max": 5}),
        route_id=_generator("int", range={"min": 1, "max": 10000}),
        rating_time=_generator("long", iteration={"start": 1, "step": 10}),
        channel=_generator("string", options=["ios", "android", "web", "iOS-test"]),
        message=_generator(
            "string",
            options=[
                "why is it so difficult to keep the bathrooms clean ?",
                "thank you for the most friendly, helpful experience",
                "more peanuts please",
            ],
        ),
    ),
}


class Datagen(SourceConnector):
    """Records of a quickstart or an Avro schema."""

    leaves_no_trace = True
    doc = "Made-up records, of a quickstart or an Avro schema with arg.properties."
    aliases = ("io.confluent.kafka.connect.datagen.DatagenConnector",)
    options = (
        ConnectorOption("kafka.topic", importance=Importance.HIGH, doc="Topic to write to"),
        ConnectorOption(
            "quickstart", default="", importance=Importance.HIGH, doc=f"One of {', '.join(QUICKSTARTS)}"
        ),
        ConnectorOption("schema.string", default="", doc="The Avro schema of the records, as JSON"),
        ConnectorOption("schema.filename", default="", doc="A file with the Avro schema"),
        ConnectorOption("schema.keyfield", default="", doc="The field that is the key"),
        ConnectorOption(
            "max.interval",
            Type.LONG,
            500,
            doc="Max interval between messages (ms); 0: as fast as possible",
            lo=0,
        ),
        ConnectorOption("iterations", Type.LONG, -1, doc="How many records each task makes; -1: no end"),
        ConnectorOption("random.seed", Type.LONG, 0, doc="Other seeds make other records"),
    )
    poll_interval_ms = 100

    @classmethod
    def check(cls, config: Config) -> Mapping[str, str]:
        """See Connector."""
        try:
            _chosen(config)
        except OptionError as error:
            return {error.option: str(error)}
        return {}

    def start(self, config: Config, context: SourceContext) -> None:
        """See Connector."""
        super().start(config, context)
        self._key, self._about = _chosen(config)
        self._schema = FromAvro().schema(self._about)

    def partitions(self) -> Sequence[Json]:
        """One per task."""
        return [{"task.id": number} for number in range(int(self.config.get("tasks.max", 1)))]

    def poll(self, partition: Json, offset: Json | None) -> list[SourceRecord]:
        """See SourceConnector."""
        begin = int((offset or {}).get(ITERATION, 0))
        most, interval_ms = self.config["iterations"], self.config["max.interval"]
        end = begin + (BATCH if not interval_ms else 1)
        end = end if most < 0 else min(end, most)
        if interval_ms and begin < end:
            self.context.stopping.wait(random.uniform(0, interval_ms) / 1000)
        return [self._next_record(int(partition["task.id"]), number) for number in range(begin, end)]

    def _next_record(self, task: int, number: int) -> SourceRecord:
        chance = random.Random(f"{self.config['random.seed']}-{task}-{number}")
        value = _value(self._about, chance, number)
        key_schema: Schema | None = self._schema.by_name[self._key].schema if self._key else None
        return SourceRecord(
            self.config["kafka.topic"],
            value,
            value[self._key] if self._key else None,
            self._schema,
            key_schema,
            timestamp_ms=int(time.time() * 1000),
            source_offset={ITERATION: number + 1},
        )


def _chosen(config: Config) -> tuple[str, dict[str, Any]]:
    """The key's field and the schema. Raises OptionError."""
    name = config["quickstart"].lower()
    key = config["schema.keyfield"]
    if name:
        if name not in QUICKSTARTS:
            raise OptionError(
                f"quickstart is {name!r}, but must be one of {', '.join(QUICKSTARTS)}", "quickstart"
            )
        return key or QUICKSTARTS[name][0], QUICKSTARTS[name][1]
    text = config["schema.string"]
    if not text and config["schema.filename"]:
        try:
            text = Path(config["schema.filename"]).read_text()
        except OSError as error:
            raise OptionError(
                f"{config['schema.filename']} cannot be read: {error.strerror}", "schema.filename"
            ) from None
    if not text:
        raise OptionError("one of quickstart, schema.string and schema.filename is needed", "quickstart")
    try:
        about = json.loads(text)
        schema = FromAvro().schema(about)
        _value(about, random.Random(0), 0)
    except (ValueError, KeyError, TypeError, AttributeError, DataError, ConnectError) as error:
        raise OptionError(f"the schema cannot be used: {error}", "schema.string") from None
    if schema.type != "struct" or (key and key not in schema.by_name):
        raise OptionError("the schema must be a record that has schema.keyfield", "schema.string")
    return key, about


def _value(about: Any, chance: random.Random, number: int) -> Any:
    if isinstance(about, list):
        return _value(chance.choice(about), chance, number)
    if isinstance(about, str):
        return _plain(about, {}, chance, number)
    kind, how = about["type"], about.get("arg.properties") or {}
    if kind == "record":
        return {row["name"]: _value(_field(row), chance, number) for row in about["fields"]}
    if kind == "array":
        return [_value(about["items"], chance, number) for _ in range(chance.randint(1, 3))]
    if kind == "map":
        return {_text("[a-z]{4}", chance): _value(about["values"], chance, number) for _ in range(2)}
    if kind == "enum":
        return chance.choice(about["symbols"])
    if isinstance(kind, (dict, list)):
        return _value(kind, chance, number)
    return _plain(kind, how, chance, number)


def _field(row: Mapping[str, Any]) -> Any:
    """Properties may stand beside the type."""
    if "arg.properties" in row and isinstance(row["type"], str):
        return {"type": row["type"], "arg.properties": row["arg.properties"]}
    return row["type"]


def _plain(kind: str, how: Mapping[str, Any], chance: random.Random, number: int) -> Any:
    if "options" in how:
        return chance.choice(how["options"])
    if "iteration" in how:
        rule = how["iteration"]
        number_made = rule.get("start", 0) + number * rule.get("step", 1)
        return float(number_made) if kind in ("double", "float") else number_made
    if kind in ("int", "long"):
        rule = how.get("range") or {}
        return chance.randrange(int(rule.get("min", 0)), int(rule.get("max", 1 << 31)))
    if kind in ("float", "double"):
        rule = how.get("range") or {}
        return chance.uniform(rule.get("min", 0.0), rule.get("max", 1.0))
    if kind == "boolean":
        return chance.random() < 0.5
    if kind == "null":
        return None
    text = _text(how.get("regex", "[a-z]{8}"), chance)
    return text.encode() if kind == "bytes" else text


def _text(pattern: str, chance: random.Random) -> str:
    """A text that matches: characters, [classes], \\escapes, {n} and {n,m}."""
    letters, at = "", 0
    while at < len(pattern):
        char = pattern[at]
        if char == "[":
            end = pattern.index("]", at)
            choices = _class(pattern[at + 1 : end])
            at = end + 1
        elif char == "\\" and at + 1 < len(pattern):
            choices = {"d": "0123456789", "w": LETTERS}.get(pattern[at + 1], pattern[at + 1])
            at += 2
        else:
            choices, at = LETTERS if char == "." else char, at + 1
        count = 1
        if pattern[at : at + 1] == "{":
            end = pattern.index("}", at)
            lo, _, hi = pattern[at + 1 : end].partition(",")
            count = chance.randint(int(lo), int(hi or lo))
            at = end + 1
        elif pattern[at : at + 1] in ("+", "*", "?"):
            count = chance.randint(int(pattern[at] == "+"), 1 if pattern[at] == "?" else 4)
            at += 1
        letters += "".join(chance.choice(choices) for _ in range(count))
    return letters


def _class(text: str) -> str:
    letters, at = "", 0
    while at < len(text):
        if text[at + 1 : at + 2] == "-" and at + 2 < len(text):
            letters += "".join(map(chr, range(ord(text[at]), ord(text[at + 2]) + 1)))
            at += 3
        else:
            letters += text[at]
            at += 1
    return letters
