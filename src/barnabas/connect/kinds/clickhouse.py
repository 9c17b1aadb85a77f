"""Rows of ClickHouse tables, over HTTP as JSONEachRow. The options are those of ClickHouse's own sink.

Each insert has a deduplication token made of its records' places, so what is sent again after a lost answer is dropped by
tables that keep such tokens (Replicated engines, or `non_replicated_deduplication_window`). After a failure of the worker
records may be divided into other inserts: ReplacingMergeTree leaves one row of each key.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final
from urllib.parse import quote

from barnabas.connect.connectors import SinkConnector, SinkContext
from barnabas.connect.errors import ConnectError, DataError, OptionError, RetriableError
from barnabas.connect.kinds.talking import Halted, plain_json, short
from barnabas.connect.options import Config, ConnectorOption, Importance, Type
from barnabas.connect.records import SinkRecord
from barnabas.http_client import Address, Answer, NoAnswer, Service

UNREADABLE: Final = re.compile(r"\(at row (\d+)\)")
VIOLATED: Final = re.compile(r"is violated at row (\d+)\.")
CODE: Final = re.compile(r"^Code: (\d+)\.")
BUSY: Final = frozenset({3, 159, 202, 209, 210, 241, 242, 243, 252, 285, 319, 999})
"""Codes of errors that pass: time limits, too many queries or parts, no memory, no quorum, a read-only table."""
BUSY_STATUS: Final = frozenset({408, 425, 429, 502, 503, 504})
REFUSED_MAX: Final = 1_000
NAME: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?")

Groups = list[tuple[str, list[SinkRecord]]]


class ClickHouseSink(SinkConnector):
    """See the module."""

    doc = "Inserts records into tables of ClickHouse."
    aliases = ("com.clickhouse.kafka.connect.ClickHouseSinkConnector",)
    options = (
        ConnectorOption("hostname", importance=Importance.HIGH, doc="The server."),
        ConnectorOption(
            "port", Type.INT, 8443, Importance.HIGH, "The port of its HTTP interface.", lo=1, hi=65535
        ),
        ConnectorOption("ssl", Type.BOOLEAN, True, doc="Whether it is asked by HTTPS."),
        ConnectorOption("ssl.ca.file", default=None, doc="Certificates to trust (PEM)."),
        ConnectorOption("database", default="default", doc="The database."),
        ConnectorOption("username", default="default", doc="The user."),
        ConnectorOption("password", Type.PASSWORD, "", doc="The password."),
        ConnectorOption(
            "topic2TableMap",
            Type.LIST,
            "",
            doc="TOPIC=TABLE, with commas; other topics have tables of their names.",
        ),
        ConnectorOption(
            "clickhouseSettings", Type.LIST, "", doc="NAME=VALUE, with commas: settings of the inserts."
        ),
        ConnectorOption("timeoutSeconds", Type.INT, 30, Importance.LOW, "How long a request may take.", lo=1),
        ConnectorOption(
            "exactlyOnce",
            Type.BOOLEAN,
            False,
            doc="Must be false: see deduplication tokens and ReplacingMergeTree.",
        ),
    )

    @classmethod
    def check(cls, config: Config) -> Mapping[str, str]:
        """Also asks the server."""
        if config["exactlyOnce"]:
            return {
                "exactlyOnce": "there is no state in ClickHouse here: leave it false, and use ReplacingMergeTree, which "
                "keeps one row of each key"
            }
        for name in ("topic2TableMap", "clickhouseSettings"):
            wrong = [pair for pair in config[name] if "=" not in pair]
            if wrong:
                return {name: f"{wrong[0]!r} is not NAME=VALUE"}
        service = _service(config)
        try:
            answer = service.ask(
                "GET", "/?query=" + quote("SELECT 1"), headers=_headers(config), bytes_max=1000
            )
        except NoAnswer as error:
            return {"hostname": f"{config['hostname']}:{config['port']} does not answer: {error}"}
        finally:
            service.close()
        if answer.status != 200:
            option = "password" if answer.status in (401, 403) or b"Code: 516" in answer.body else "hostname"
            return {option: f"ClickHouse answers {answer.status}: {short(answer.body)}"}
        return {}

    def start(self, config: Config, context: SinkContext) -> None:
        """See SinkConnector."""
        super().start(config, context)
        self._service = _service(config)
        self._halted = Halted[Groups]()
        self._tables = dict(pair.split("=", 1) for pair in config["topic2TableMap"])
        self._settings = dict(pair.split("=", 1) for pair in config["clickhouseSettings"])

    def put(self, records: Sequence[SinkRecord]) -> None:
        """See SinkConnector. What was inserted before an insert that failed is not inserted again."""
        groups = self._halted.take(records)
        if groups is None:
            groups = self._groups(records)
        while groups:
            try:
                self._insert(*groups[0])
            except RetriableError:
                self._halted.keep(records, groups)
                raise
            del groups[0]

    def _groups(self, records: Sequence[SinkRecord]) -> Groups:
        """Tables with the rows of one insert."""
        rows: list[tuple[str, SinkRecord]] = []
        for record in records:
            if record.value is None:
                continue  # nothing can be deleted by an insert
            if not isinstance(record.value, dict):
                kind = type(record.value).__name__
                self.context.report(record, DataError(f"a {kind} is no row: the value must have fields"))
                continue
            rows.append((self._table(record.topic), record))
        return [
            (table, [record for _, record in group]) for table, group in groupby(rows, key=lambda row: row[0])
        ]

    def _table(self, topic: str) -> str:
        table = str(self._tables.get(topic, topic))
        if not NAME.fullmatch(table):
            raise ConnectError(f"topic {topic} has no table: {table!r} is no name; topic2TableMap names one")
        return table

    def _insert(self, table: str, records: list[SinkRecord]) -> None:
        """Without a record that ClickHouse refuses, the others are sent again. Raises ConnectError."""
        refused = 0
        while records:
            answer = self._ask(table, records)
            if answer.status == 200:
                return
            text = answer.body.decode("utf-8", "replace")
            bad = _bad_row(text)
            if bad is None or not 1 <= bad <= len(records) or refused >= REFUSED_MAX:
                raise _failure(table, answer, text)
            refused += 1
            self.context.report(records.pop(bad - 1), DataError(f"table {table}: {short(answer.body)}"))

    def _ask(self, table: str, records: Sequence[SinkRecord]) -> Answer:
        first, last = records[0], records[-1]
        places = f"{first.original_topic}-{first.original_partition}-{first.offset}"
        token = f"{places}-{last.original_topic}-{last.original_partition}-{last.offset}-{len(records)}"
        settings = {
            "query": f"INSERT INTO {table} FORMAT JSONEachRow",
            "database": self.config["database"],
            "insert_deduplication_token": token,
            "async_insert": "0",
            "input_format_skip_unknown_fields": "1",
            "date_time_input_format": "best_effort",
            **self._settings,
        }
        path = "/?" + "&".join(f"{name}={quote(value)}" for name, value in settings.items())
        body = "".join(f"{plain_json(record.value)}\n" for record in records).encode()
        try:
            return self._service.ask("POST", path, body, _headers(self.config))
        except NoAnswer as error:
            raise RetriableError(
                f"ClickHouse at {self.config['hostname']} does not answer: {error}"
            ) from error

    def stop(self) -> None:
        """See SinkConnector."""
        if hasattr(self, "_service"):
            self._service.close()


def _service(config: Config) -> Service:
    """Raises OptionError."""
    import ssl

    scheme = "https" if config["ssl"] else "http"
    context = None
    if config["ssl"] and config["ssl.ca.file"]:
        try:
            context = ssl.create_default_context(cafile=config["ssl.ca.file"])
        except OSError as error:
            raise OptionError(f"{config['ssl.ca.file']} cannot be read: {error}", "ssl.ca.file") from error
    address = Address(f"{scheme}://{config['hostname']}:{config['port']}", context)
    return Service(address, timeout_s=float(config["timeoutSeconds"]))


def _headers(config: Config) -> dict[str, str]:
    login = base64.b64encode(f"{config['username']}:{config['password'] or ''}".encode()).decode()
    return {"Authorization": f"Basic {login}", "Content-Type": "application/x-ndjson"}


def _bad_row(text: str) -> int | None:
    """The row (from 1) that an error is about; None when it is about the whole insert. Rows are quoted in the text before
    the number of an unreadable row, but after that of a row that violates a constraint."""
    violated = VIOLATED.search(text)
    if text.startswith("Code: 469.") and violated:
        return int(violated[1])
    unreadable = UNREADABLE.findall(text)
    return int(unreadable[-1]) if unreadable else None


def _failure(table: str, answer: Answer, text: str) -> ConnectError:
    code = CODE.search(text)
    message = f"ClickHouse answers {answer.status} for table {table}: {short(answer.body)}"
    if answer.status in BUSY_STATUS or (code is not None and int(code[1]) in BUSY):
        return RetriableError(message)
    return ConnectError(message)
