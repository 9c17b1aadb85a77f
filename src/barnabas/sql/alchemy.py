"""A dialect of SQLAlchemy: `create_engine("barnabas://localhost:8088")`, so that pandas, Superset and others read tables and
streams. Names that are written in small letters are those in capitals on the server, as with other databases of this kind.
Query parameters of the URL: `timeout_s`, `start` (earliest or latest), `tls=true`."""

from __future__ import annotations

from typing import Any

from sqlalchemy import types
from sqlalchemy.engine import URL, Connection, default
from sqlalchemy.sql import compiler

import barnabas.sql

TYPES: dict[str, Any] = {
    "BOOLEAN": types.BOOLEAN,
    "INTEGER": types.INTEGER,
    "BIGINT": types.BIGINT,
    "DOUBLE": types.FLOAT,
    "STRING": types.VARCHAR,
    "BYTES": types.LargeBinary,
    "DATE": types.DATE,
    "TIME": types.TIME,
    "TIMESTAMP": types.TIMESTAMP,
}


class Compiler(compiler.SQLCompiler):
    """A pull query has LIMIT, and no OFFSET."""

    def limit_clause(self, select: Any, **kw: Any) -> str:
        """LIMIT n."""
        if select._offset_clause is not None:
            raise barnabas.sql.NotSupportedError(
                "there is no OFFSET: rows of streams and tables have no numbers"
            )
        if select._limit_clause is None:
            return ""
        return f"\n LIMIT {self.process(select._limit_clause, **kw)}"


class Identifiers(compiler.IdentifierPreparer):
    """Names in backquotes where they need quotes."""

    def __init__(self, dialect: Any) -> None:
        super().__init__(dialect, initial_quote="`")


class Dialect(default.DefaultDialect):
    """Reads tables and streams, and carries out statements."""

    name = "barnabas"
    driver = "http"
    statement_compiler = Compiler
    preparer = Identifiers  # type: ignore[assignment]
    supports_statement_cache = True
    supports_alter = False
    supports_native_boolean = True
    supports_sane_rowcount = False
    supports_sane_multi_rowcount = False
    supports_default_values = False
    supports_multivalues_insert = False
    postfetch_lastrowid = False
    requires_name_normalize = True
    max_identifier_length = 200
    default_paramstyle = "qmark"

    @classmethod
    def import_dbapi(cls) -> Any:
        """The module of PEP 249."""
        return barnabas.sql

    def create_connect_args(self, url: URL) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of connect."""
        query = dict(url.query)
        scheme = "https" if str(query.pop("tls", "")).lower() in ("true", "1") else "http"
        login = f"{url.username}:{url.password or ''}@" if url.username else ""
        timeout = query.pop("timeout_s", None)
        start = query.pop("start", None)
        options = {"properties": {str(name): str(value) for name, value in query.items()}}
        if timeout is not None:
            options["timeout_s"] = float(str(timeout))  # type: ignore[assignment]
        if start is not None:
            options["start"] = str(start)  # type: ignore[assignment]
        return [f"{scheme}://{login}{url.host or '127.0.0.1'}:{url.port or 8088}"], options

    def do_rollback(self, dbapi_connection: Any) -> None:
        """Nothing: there are no transactions."""

    def _get_server_version_info(self, connection: Connection) -> None:
        return None

    def _get_default_schema_name(self, connection: Connection) -> str:
        return ""

    def _check_unicode_returns(self, connection: Connection) -> bool:
        return True

    def _names(self, connection: Connection, what: str) -> list[str]:
        cursor = connection.connection.cursor()
        cursor.execute(f"SHOW {what};")
        rows = [] if cursor.description is None else cursor.fetchall()
        at = [column[0] for column in cursor.description or []].index("name") if rows else 0
        return [str(_small(row[at])) for row in rows]

    def get_schema_names(self, connection: Connection, **kw: Any) -> list[str]:
        """There are none."""
        return []

    def get_table_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        """Tables, then streams."""
        return self._names(connection, "TABLES") + self._names(connection, "STREAMS")

    def get_view_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        """There are none."""
        return []

    def has_table(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> bool:
        """Whether there is a stream or table of a name."""
        return table_name in self.get_table_names(connection)

    def get_columns(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[Any]:
        """The columns of a stream or table."""
        return [
            {"name": _small(name), "type": _type(kind), "nullable": not key, "default": None}
            for name, kind, key in self._described(connection, table_name)
        ]

    def _described(self, connection: Connection, table_name: str) -> list[tuple[str, str, bool]]:
        cursor = connection.connection.cursor()
        name = str(_capital(table_name)).replace("`", "")
        cursor.execute(f"DESCRIBE `{name}`;")
        return [(str(row[0]), str(row[1]), bool(row[2])) for row in cursor.fetchall()]

    def get_pk_constraint(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        """The columns of the key."""
        names = [_small(name) for name, _, key in self._described(connection, table_name) if key]
        return {"constrained_columns": names, "name": None}

    def get_foreign_keys(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[Any]:
        """There are none."""
        return []

    def get_indexes(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[Any]:
        """There are none."""
        return []


def _type(text: str) -> Any:
    if text.startswith("DECIMAL"):
        precision, scale = text[8:-1].split(",")
        return types.DECIMAL(int(precision), int(scale))
    return TYPES.get(text, types.JSON)()


def _small(name: str) -> str:
    """A name of the server as SQLAlchemy knows it: those in capitals in small letters."""
    return name.lower() if name == name.upper() else name


def _capital(name: str) -> str:
    """A name of SQLAlchemy as the server knows it."""
    return name.upper() if name == name.lower() else name
