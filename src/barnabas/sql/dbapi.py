"""Connections and cursors (PEP 249) of a SQL server.

    with barnabas.sql.connect("http://localhost:8088") as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT * FROM totals WHERE user_id = ?", ["alice"])
        print(cursor.description, cursor.fetchall())
        for row in cursor.execute("SELECT * FROM clicks EMIT CHANGES LIMIT 10"):   # rows as they come
            print(row)

A query with EMIT CHANGES has rows until LIMIT, until its cursor is closed, or for `timeout_s`. There are no transactions:
statements count at once.
"""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from types import TracebackType
from typing import Any, Final, Self

from barnabas.sql.client import PORT, Client
from barnabas.sql.errors import DataError, InterfaceError, NotSupportedError, OperationalError

apilevel: Final = "2.0"
threadsafety: Final = 1
"""Threads may share the module, not connections."""
paramstyle: Final = "qmark"
START: Final = "auto.offset.reset"
ROWS: Final = ("SELECT", "PRINT")
Row = tuple[Any, ...]
Described = tuple[str, str | None, None, None, None, None, bool | None]


def connect(
    url: str = f"http://127.0.0.1:{PORT}",
    *,
    properties: Mapping[str, str] | None = None,
    start: str | None = None,
    timeout_s: float | None = None,
) -> Connection:
    """A connection to a server. url: may hold USER:PASSWORD@. properties: as SET gives them. start: where queries begin to
    read, `earliest` or `latest`. timeout_s: how long the rows of a query are followed; None: until it ends. Nothing is sent
    yet. Raises InterfaceError."""
    settings = dict(properties or {})
    if start is not None:
        settings[START] = start
    return Connection(Client(url), settings, timeout_s)


class Connection:
    """A server, and what SET has said."""

    def __init__(self, client: Client, properties: dict[str, str], timeout_s: float | None) -> None:
        self.client = client
        self.properties = properties
        self.timeout_s = timeout_s
        self._cursors: list[Cursor] = []
        self._closed = False

    def cursor(self) -> Cursor:
        """A new cursor. Raises InterfaceError."""
        if self._closed:
            raise InterfaceError("the connection is closed")
        new_cursor = Cursor(self)
        self._cursors = [cursor for cursor in self._cursors if not cursor.closed] + [new_cursor]
        return new_cursor

    def commit(self) -> None:
        """Nothing: statements count at once."""

    def rollback(self) -> None:
        """Raises NotSupportedError."""
        raise NotSupportedError("statements on streams count at once, and cannot be taken back")

    def close(self) -> None:
        """Ends the queries of all cursors."""
        self._closed = True
        for cursor in self._cursors:
            cursor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Cursor:
    """One statement at a time. rowcount: -1 while rows may still come. arraysize: of fetchmany."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.description: list[Described] | None = None
        self.rowcount = -1
        self.arraysize = 1
        self.query_id: str | None = None
        self.messages: list[str] = []
        self.closed = False
        self._lines: Iterator[str] | None = None
        self._rows: Iterator[Row] = iter(())

    # --- statements --------------------------------------------------------------------------------

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Self:
        """Carries out a statement; each ? in it stands for a parameter. Raises Error."""
        if self.closed:
            raise InterfaceError("the cursor is closed")
        self._end()
        text = filled(statement, parameters).strip().rstrip(";") + ";"
        self.description, self.rowcount, self.query_id, self.messages = None, -1, None, []
        if text.split(None, 1)[0].rstrip(";").upper() in ROWS:
            self._query(text)
        else:
            self._others(text)
        return self

    def executemany(self, statement: str, several: Sequence[Sequence[Any]]) -> Self:
        """Carries out a statement with each of several lists of parameters. Raises Error."""
        for parameters in several:
            self.execute(statement, parameters)
        self.rowcount = len(several)
        return self

    def _query(self, text: str) -> None:
        lines = self.connection.client.lines(text, self.connection.properties, self.connection.timeout_s)
        self._lines = lines
        first = next(lines, None)
        if first is None:
            return
        if not first.startswith("{"):  # PRINT
            self.description = [_described("record", "STRING")]
            self._rows = ((line,) for line in _with_first(first, lines))
            return
        header = json.loads(first)
        self.query_id = header.get("queryId") or None
        kinds = [str(kind).removesuffix(" KEY") for kind in header["columnTypes"]]
        self.description = [
            _described(name, kind) for name, kind in zip(header["columnNames"], kinds, strict=True)
        ]
        self._rows = (_row(line, kinds) for line in lines)

    def _others(self, text: str) -> None:
        word, _, rest = text.partition(" ")
        if word.upper() in ("SET", "UNSET"):
            self._set(rest, word.upper())
            return
        rows_read: list[dict[str, Any]] = []
        for answer in self.connection.client.statements(text, self.connection.properties):
            self.messages += [str(warning["message"]) for warning in answer.get("warnings", [])]
            rows = _listed(answer)
            if rows is None:
                status = answer.get("commandStatus", {})
                self.messages.append(str(status.get("message", answer.get("@type", ""))))
                self.query_id = status.get("queryId") or self.query_id
                continue
            rows_read += rows
        if rows_read:
            names = list(rows_read[0])
            self.description = [_described(name, "STRING") for name in names]
            self._rows = iter([tuple(row.get(name) for name in names) for row in rows_read])
            self.rowcount = len(rows_read)

    def _set(self, rest: str, word: str) -> None:
        """SET 'name' = 'value', which counts for this connection. Raises InterfaceError."""
        parts = [part.strip().strip("'") for part in rest.strip().rstrip(";").split("=", 1)]
        if word == "UNSET":
            self.connection.properties.pop(parts[0], None)
        elif len(parts) == 2:
            self.connection.properties[parts[0]] = parts[1]
        else:
            raise InterfaceError("SET 'name' = 'value' is expected")

    # --- rows --------------------------------------------------------------------------------------

    def fetchone(self) -> Row | None:
        """The next row; None at the end. Waits for a row of a query that follows. Raises Error."""
        self._need_rows()
        row = next(self._rows, None)
        if row is None:
            self._end()
        return row

    def fetchmany(self, size: int | None = None) -> list[Row]:
        """The next rows. Raises Error."""
        rows: list[Row] = []
        while len(rows) < (self.arraysize if size is None else size):
            row = self.fetchone()
            if row is None:
                break
            rows.append(row)
        return rows

    def fetchall(self) -> list[Row]:
        """All rows that are left; a query that follows ends with LIMIT, or with the connection's timeout_s. Raises Error."""
        self._need_rows()
        rows = list(self._rows)
        self.rowcount = len(rows)
        self._end()
        return rows

    def __iter__(self) -> Iterator[Row]:
        while (row := self.fetchone()) is not None:
            yield row

    def _need_rows(self) -> None:
        if self.description is None:
            raise InterfaceError("the last statement has no rows")

    def _end(self) -> None:
        """Ends the query, if one runs."""
        lines, self._lines, self._rows = self._lines, None, iter(())
        if lines is not None:
            lines.close()  # type: ignore[attr-defined]

    def close(self) -> None:
        """Ends the query."""
        self._end()
        self.closed = True

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Nothing: part of PEP 249."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Nothing: part of PEP 249."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _with_first(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest


def _described(name: str, kind: str) -> Described:
    return (name, kind, None, None, None, None, None)


def _row(line: str, kinds: Sequence[str]) -> Row:
    document = json.loads(line, parse_float=Decimal)
    if isinstance(document, dict):
        raise OperationalError(str(document.get("message", line)))
    return tuple(_value(value, kind) for value, kind in zip(document, kinds, strict=True))


def _value(value: Any, kind: str) -> Any:
    """A value of JSON as Python's type for a column's type."""
    if value is None:
        return None
    if kind == "TIMESTAMP" and isinstance(value, int):
        return datetime.datetime.fromtimestamp(value / 1000, datetime.UTC)
    if kind == "DATE" and isinstance(value, int):
        return datetime.date(1970, 1, 1) + datetime.timedelta(days=value)
    if kind == "TIME" and isinstance(value, int):
        return (datetime.datetime.min + datetime.timedelta(milliseconds=value)).time()
    if kind == "BYTES" and isinstance(value, str):
        return base64.b64decode(value)
    if kind.startswith("DECIMAL"):
        return Decimal(str(value))
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return value


def _listed(answer: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The rows of an answer to SHOW or DESCRIBE; None if it is another one."""
    for name in ("streams", "tables", "topics", "queries", "functions", "properties"):
        rows = answer.get(name)
        if isinstance(rows, list) and answer.get("@type") not in ("describe_function",):
            return [{key: _shown(value) for key, value in row.items()} for row in rows]
    described = answer.get("sourceDescription")
    if isinstance(described, dict):
        return [
            {"name": field["name"], "type": _type_text(field["schema"]), "key": field.get("type") == "KEY"}
            for field in described["fields"]
        ]
    return None


def _type_text(schema: Mapping[str, Any]) -> str:
    kind = str(schema["type"])
    if kind == "STRUCT":
        inner = [f"{field['name']} {_type_text(field['schema'])}" for field in schema["fields"]]
        return f"STRUCT<{', '.join(inner)}>"
    if kind in ("ARRAY", "MAP"):
        return f"{kind}<{'STRING, ' if kind == 'MAP' else ''}{_type_text(schema['memberSchema'])}>"
    if kind == "DECIMAL":
        digits = schema.get("parameters", {})
        return f"DECIMAL({digits.get('precision', 38)}, {digits.get('scale', 0)})"
    return kind


def _shown(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) else value


# --- parameters ---------------------------------------------------------------------------------------


def filled(statement: str, parameters: Sequence[Any]) -> str:
    """A statement with the values of its parameters in place of the question marks outside of quotes. Raises DataError,
    InterfaceError."""
    if isinstance(parameters, Mapping | str):
        raise InterfaceError("parameters are a list, one for each ?")
    left, parts, quote = list(parameters), [], ""
    for char in statement:
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"`":
            quote = char
        elif char == "?":
            if not left:
                raise InterfaceError(f"the statement has more ? than the {len(parameters)} parameters")
            parts.append(literal(left.pop(0)))
            continue
        parts.append(char)
    if left:
        raise InterfaceError(
            f"{len(parameters)} parameters, but {len(parameters) - len(left)} ? in the statement"
        )
    return "".join(parts)


def literal(value: Any) -> str:
    """A value as SQL writes it. Raises DataError."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | Decimal):
        return str(value)
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise DataError(f"{value} cannot be written in a statement")
        return f"{value!r}E0" if "e" not in repr(value) else repr(value)
    if isinstance(value, datetime.datetime):
        moment = value.astimezone(datetime.UTC) if value.tzinfo is not None else value
        return f"'{moment.strftime('%Y-%m-%dT%H:%M:%S')}.{moment.microsecond // 1000:03}'"
    if isinstance(value, datetime.date):
        return f"'{value.isoformat()}'"
    if isinstance(value, bytes):
        return f"TO_BYTES('{value.hex()}', 'hex')"
    if isinstance(value, list | tuple):
        return f"ARRAY[{', '.join(map(literal, value))}]"
    if isinstance(value, dict):
        return f"MAP({', '.join(f'{literal(key)} := {literal(one)}' for key, one in value.items())})"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    raise DataError(f"{type(value).__name__} cannot be written in a statement")
