"""Writes rows to a table in the fastest way that its database has, and finds the rows that it refuses by bisection."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

REFUSED_ROWS_MAX: Final = 1000
REFUSALS: Final = (sa.exc.DataError, sa.exc.IntegrityError, OverflowError)
"""Errors of a database or its driver for a row that it will never accept."""
CONFLICT_STATES: Final = ("40P01", "40001")
"""SQL states of a deadlock and of a transaction that could not be put in order with others."""
CONFLICT_NUMBERS: Final = (1213, 1205)
"""The same, as MySQL and MariaDB number them."""
Row = Sequence[Any]
STAGED: Final = "barnabas_rows"
NUMBER: Final = "barnabas_number"


def bound(value: Any, dialect: str) -> Any:
    """A value as the driver accepts it. SQLite has no decimals and no times; as text they stay exact."""
    if dialect == "sqlite":
        if isinstance(value, Decimal):
            return str(value)
        if isinstance(value, dt.datetime):
            return value.isoformat(" ")
        if isinstance(value, dt.date):
            return value.isoformat()
    return value


class Number(str):
    """A JSON number with a point or an exponent, as it was written."""


def json_text(value: Any) -> str:
    """A decoded JSON value as text again, with its Numbers as they were."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json_text(str(name))}: {json_text(v)}" for name, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(json_text(v) for v in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def from_json(value: Any, kind: sa.types.TypeEngine[Any], column: str) -> Any:
    """A value of a JSON document (decoded with Numbers) for a column of this type. Raises ValueError."""
    try:
        wanted = kind.python_type
    except NotImplementedError:
        wanted = str
    if value is None:
        return None
    text = value if isinstance(value, str) else json_text(value)
    try:
        if wanted is bool:
            return {"true": True, "false": False, "1": True, "0": False}[text.strip().lower()]
        if wanted is int:
            return int(text)
        if wanted is float:
            return float(text)
        if wanted is Decimal:
            return Decimal(text.strip())
        if wanted is dt.datetime:
            return dt.datetime.fromisoformat(text.strip())
        if wanted is dt.date:
            return dt.date.fromisoformat(text.strip())
        if wanted is bytes:
            return text.encode()
    except (ValueError, KeyError, InvalidOperation):
        raise ValueError(f"{column} is {text[:80]}, not {wanted.__name__}") from None
    return str(text)


def is_conflict(error: sa.exc.DBAPIError) -> bool:
    """Whether the database ended a transaction because of another one (a deadlock), so that it may succeed when repeated."""
    inner = error.orig
    code = getattr(inner, "sqlstate", None) or getattr(inner, "pgcode", None)
    arguments: tuple[Any, ...] = getattr(inner, "args", ())
    return code in CONFLICT_STATES or (bool(arguments) and arguments[0] in CONFLICT_NUMBERS)


def _sorted_by(places: Sequence[int], rows: list[Row]) -> list[Row]:
    """Rows in the order of their keys, and rows with equal keys in the order given: two transactions that change the same
    rows in the same order wait for each other, and those that do not may end in a deadlock."""
    return sorted(rows, key=lambda row: [str(row[place]) for place in places]) if places else rows


@dataclass(slots=True)
class _Pending:
    """Rows to add and keys to delete, by their indices. They have no key in common, so their order does not matter."""

    adding: dict[int, Row] = field(default_factory=dict)
    deleting: dict[int, Row] = field(default_factory=dict)
    _keys: dict[bool, set[Row]] = field(default_factory=lambda: {False: set(), True: set()})

    def opposes(self, key: Row, gone: bool) -> bool:
        """Whether the opposite of adding (or of deleting, if `gone`) is pending for this key."""
        return self._folded(key) in self._keys[not gone]

    def note(self, place: int, row: Row, key: Row, gone: bool) -> None:
        (self.deleting if gone else self.adding)[place] = row
        self._keys[gone].add(self._folded(key))

    @staticmethod
    def _folded(key: Row) -> Row:
        """The key in a form that is equal for all keys that some database may treat as equal."""
        return tuple(str(value).strip().casefold() for value in key)


class Store:
    """Adds rows to a table, or with a key replaces existing ones. All within the connection's transaction."""

    def __init__(self, connection: sa.Connection, schema: str | None, table: str, key: list[str]) -> None:
        self.connection = connection
        self.schema, self.table, self.key = schema, table, key
        self.dialect = connection.dialect.name
        self._copies = connection.dialect.driver == "psycopg"
        self._staged: list[str] = []

    def add(self, columns: list[str], rows: list[Row]) -> list[tuple[int, Exception]]:
        """Stores rows of these columns; returns the indices of those that the database refuses, and why.

        Raises the database's error if it is about the table, or if more than REFUSED_ROWS_MAX rows are refused.
        """
        refused: list[tuple[int, Exception]] = []
        if rows and columns:
            self._add(columns, rows, 0, refused)
        return refused

    def change(self, columns: list[str], rows: list[Row], gone: list[bool]) -> list[tuple[int, Exception]]:
        """Stores rows as `add` does, and deletes others, all in order. gone: for each row, whether the stored row with
        its key is deleted instead."""
        if not any(gone):
            return self.add(columns, rows)
        refused: list[tuple[int, Exception]] = []
        missing = [name for name in self.key if name not in columns]
        at = [] if missing else [columns.index(name) for name in self.key]
        pending = _Pending()
        for place, (row, is_gone) in enumerate(zip(rows, gone, strict=True)):
            key = tuple(row[i] for i in at)
            if is_gone and (missing or None in key):
                name = missing[0] if missing else self.key[key.index(None)]
                refused.append((place, ValueError(f"a delete needs its key, and {name} is null")))
                continue
            if pending.opposes(key, is_gone):
                refused += self._flush(columns, pending)
                pending = _Pending()
            pending.note(place, key if is_gone else row, key, is_gone)
        return sorted([*refused, *self._flush(columns, pending)], key=lambda pair: pair[0])

    def _flush(self, columns: list[str], pending: _Pending) -> list[tuple[int, Exception]]:
        refused = self.add(columns, list(pending.adding.values()))
        places = list(pending.adding)
        failed: list[tuple[int, Exception]] = []
        if pending.deleting:
            self._try(self._delete, self.key, list(pending.deleting.values()), 0, failed)
        others = list(pending.deleting)
        return [(places[i], why) for i, why in refused] + [(others[i], why) for i, why in failed]

    def _add(
        self, columns: list[str], rows: list[Row], at: int, refused: list[tuple[int, Exception]]
    ) -> None:
        self._try(self._copied if self._copies else self._insert, columns, rows, at, refused)

    def _try(
        self,
        work: Callable[[list[str], list[Row]], None],
        columns: list[str],
        rows: list[Row],
        at: int,
        refused: list[tuple[int, Exception]],
    ) -> None:
        """Calls `work` with all rows or, if the database refuses some, with those that it accepts."""
        try:
            with self.connection.begin_nested():
                work(columns, rows)
        except REFUSALS as error:
            if len(rows) == 1:
                if len(refused) >= REFUSED_ROWS_MAX:
                    raise
                refused.append((at, error))
                return
            self._staged = []  # the staging table is gone with the savepoint
            half = len(rows) // 2
            self._try(work, columns, rows[:half], at, refused)
            self._try(work, columns, rows[half:], at + half, refused)

    def _delete(self, columns: list[str], rows: list[Row]) -> None:
        table = sa.table(self.table, *[sa.column(name) for name in columns], schema=self.schema)
        same = [table.c[name] == sa.bindparam(f"v{i}") for i, name in enumerate(columns)]
        bound_rows = [
            {f"v{i}": value for i, value in enumerate(row)} for row in _sorted_by(range(len(columns)), rows)
        ]
        self.connection.execute(sa.delete(table).where(*same), bound_rows)

    def _copied(self, columns: list[str], rows: list[Row]) -> None:
        (self._copy if len(rows) > 1 else self._insert)(columns, rows)

    def _insert(self, columns: list[str], rows: list[Row]) -> None:
        table = sa.table(self.table, *[sa.column(name) for name in columns], schema=self.schema)
        names = {name: f"v{i}" for i, name in enumerate(columns)}
        in_order = _sorted_by([columns.index(name) for name in self.key if name in columns], rows)
        bound_rows = [dict(zip(names.values(), row, strict=True)) for row in in_order]
        values: dict[str, Any] = {name: sa.bindparam(bind) for name, bind in names.items()}
        rest = [name for name in columns if name not in self.key]
        if not self.key:
            self.connection.execute(sa.insert(table).values(values), bound_rows)
        elif self.dialect in ("postgresql", "sqlite"):
            insert = (postgresql if self.dialect == "postgresql" else sqlite).insert(table).values(values)
            changes = {name: insert.excluded[name] for name in rest}
            how = (
                insert.on_conflict_do_update(index_elements=self.key, set_=changes)
                if rest
                else insert.on_conflict_do_nothing(index_elements=self.key)
            )
            self.connection.execute(how, bound_rows)
        elif self.dialect in ("mysql", "mariadb"):
            add = mysql.insert(table).values(values)
            self.connection.execute(
                add.on_duplicate_key_update({name: add.inserted[name] for name in rest or self.key}),
                bound_rows,
            )
        else:
            same = [table.c[name] == sa.bindparam(names[name]) for name in self.key]
            for row in bound_rows:
                self.connection.execute(
                    sa.delete(table).where(*same), {names[n]: row[names[n]] for n in self.key}
                )
                self.connection.execute(sa.insert(table).values(values), row)

    def _copy(self, columns: list[str], rows: list[Row]) -> None:
        """Stores rows by PostgreSQL's COPY; with a key first into a temporary table, from which they replace others."""
        target, named = (
            self._quoted(self.table, self.schema),
            ", ".join(self._quoted(name) for name in columns),
        )
        if not self.key:
            self._copy_into(target, named, rows)
            return
        if self._staged != columns:
            self._run(f"DROP TABLE IF EXISTS {STAGED}")
            self._run(
                f"CREATE TEMPORARY TABLE {STAGED} ON COMMIT DROP AS "
                f"SELECT {named}, 0::bigint AS {NUMBER} FROM {target} WITH NO DATA"
            )
            self._staged = columns
        else:
            self._run(f"TRUNCATE {STAGED}")
        self._copy_into(STAGED, f"{named}, {NUMBER}", [(*row, i) for i, row in enumerate(rows)])
        keys = ", ".join(self._quoted(name) for name in self.key)
        rest = [self._quoted(name) for name in columns if name not in self.key]
        action = (
            f"UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in rest)}" if rest else "NOTHING"
        )
        # Only the last of several rows with one key is used: one statement cannot change a row twice.
        self._run(
            f"INSERT INTO {target} ({named}) SELECT DISTINCT ON ({keys}) {named} FROM {STAGED} "
            f"ORDER BY {keys}, {NUMBER} DESC ON CONFLICT ({keys}) DO {action}"
        )

    def _copy_into(self, target: str, named: str, rows: list[Row]) -> None:
        driver = self.connection.connection.driver_connection
        module = self.connection.dialect.dbapi
        assert driver is not None
        assert module is not None
        try:
            with driver.cursor() as cursor, cursor.copy(f"COPY {target} ({named}) FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
        except module.IntegrityError as error:
            raise sa.exc.IntegrityError("COPY", None, error) from error
        except module.DataError as error:
            raise sa.exc.DataError("COPY", None, error) from error
        except module.Error as error:
            raise sa.exc.DBAPIError("COPY", None, error) from error

    def _run(self, sql: str) -> None:
        self.connection.exec_driver_sql(sql.replace("%", "%%"))

    def _quoted(self, name: str, schema: str | None = None) -> str:
        quote = self.connection.dialect.identifier_preparer.quote
        return quote(name) if schema is None else f"{quote(schema)}.{quote(name)}"
