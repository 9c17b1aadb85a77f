"""Databases by JDBC URLs, or by SQLAlchemy's, and connections to them that write values as the connectors expect."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import sqlalchemy as sa

from barnabas.connect.errors import ConnectError, OptionError, RetriableError

JDBC: Final = re.compile(r"jdbc:(?P<kind>[a-z0-9]+):(?P<rest>.*)", re.DOTALL)
SERVER: Final = re.compile(
    r"//(?P<host>\[[^\]]+\]|[^:/?]*)(?::(?P<port>[0-9]+))?(?:/(?P<database>[^?]*))?(?:\?(?P<query>.*))?",
    re.DOTALL,
)
DRIVERS: Final[Mapping[str, tuple[str, str]]] = {
    "postgresql": ("postgresql+psycopg", "psycopg[binary]"),
    "mysql": ("mysql+pymysql", "pymysql"),
    "mariadb": ("mysql+pymysql", "pymysql"),
    "sqlite": ("sqlite", ""),
}
"""By the word after jdbc: SQLAlchemy's dialect and driver, and the package that has the driver."""
POSTGRES_PROPERTIES: Final[Mapping[str, str]] = {
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "ApplicationName": "application_name",
    "connectTimeout": "connect_timeout",
    "options": "options",
}
TEXT_TYPES: Final = ("json", "jsonb", "uuid", "inet", "cidr", "interval", "int4range", "int8range", "numrange", "tsrange",
                     "tstzrange", "daterange", "xml", "timetz", "money")  # fmt: skip
"""Types of PostgreSQL whose values stay as the server writes them."""
CONNECT_S: Final = 10


def sqlalchemy_url(text: str, user: str | None = None, password: str | None = None) -> sa.URL:
    """The address of a database. Raises OptionError."""
    match = JDBC.fullmatch(text.strip())
    if match is None:
        return _plain(text, user, password)
    kind, rest = match["kind"], match["rest"]
    if kind not in DRIVERS:
        raise OptionError(
            f"connection.url: no dialect for jdbc:{kind}; there are {', '.join(f'jdbc:{name}' for name in DRIVERS)}",
            "connection.url",
        )
    dialect = DRIVERS[kind][0]
    if kind == "sqlite":
        return sa.URL.create(dialect, database=rest.partition("?")[0] or ":memory:")
    server = SERVER.fullmatch(rest)
    if server is None:
        raise OptionError(
            f"connection.url has no address like jdbc:{kind}://host:port/database", "connection.url"
        )
    properties = dict(parse_qsl(server["query"] or "", keep_blank_values=True))
    return sa.URL.create(
        dialect,
        username=user or properties.pop("user", None),
        password=password or properties.pop("password", None),
        host=(server["host"] or "localhost").strip("[]"),
        port=int(server["port"]) if server["port"] else None,
        database=unquote(server["database"] or "") or None,
        query=_query(kind, properties),
    )


def _plain(text: str, user: str | None, password: str | None) -> sa.URL:
    try:
        url = sa.make_url(text)
    except sa.exc.ArgumentError as error:
        raise OptionError(
            "connection.url is neither jdbc:KIND://host:port/database nor a URL of SQLAlchemy",
            "connection.url",
        ) from error
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    if url.drivername in ("mysql", "mariadb"):
        url = url.set(drivername="mysql+pymysql")
    return url.set(username=user or url.username, password=password or url.password)


def _query(kind: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The driver's own arguments for the properties of a JDBC URL that it has; the others change nothing here."""
    if kind == "postgresql":
        query = {
            POSTGRES_PROPERTIES[name]: value
            for name, value in properties.items()
            if name in POSTGRES_PROPERTIES
        }
        if properties.get("ssl", "").lower() == "true":
            query.setdefault("sslmode", "verify-full")
        if "currentSchema" in properties:
            query["options"] = (
                f"{query.get('options', '')} -csearch_path={properties['currentSchema']}".strip()
            )
        return query
    wanted = properties.get("sslMode", "").upper()
    if wanted in ("REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY", "TRUST") or properties.get("useSSL") == "true":
        return {"ssl_verify_cert": "true" if wanted.startswith("VERIFY") else "false"}
    return {}


def engine(url: sa.URL, zone: str = "UTC") -> sa.Engine:
    """zone: the time zone in which the database's times without zones are read. Raises OptionError."""
    arguments: dict[str, Any] = {}
    if url.get_backend_name() in ("postgresql", "mysql") and "connect_timeout" not in url.query:
        arguments["connect_timeout"] = CONNECT_S
    try:
        new_engine = sa.create_engine(url, connect_args=arguments, poolclass=sa.pool.NullPool)
    except (sa.exc.ArgumentError, ImportError) as error:
        package = next((need for driver, need in DRIVERS.values() if driver == url.drivername), "")
        hint = f"; pip install '{package}'" if package and isinstance(error, ImportError) else ""
        raise OptionError(f"connection.url {shown(url)}: {error}{hint}", "connection.url") from error
    prepare = PREPARE.get(new_engine.dialect.name)
    if prepare is not None:
        sa.event.listen(new_engine, "connect", lambda connection, _: prepare(connection, zone))
    return new_engine


def _prepare_postgres(connection: Any, zone: str) -> None:
    from psycopg.types.string import TextLoader

    for name in TEXT_TYPES:
        connection.adapters.register_loader(name, TextLoader)
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('TimeZone', %s, false)", [zone])
    connection.commit()


def _prepare_mysql(connection: Any, zone: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET time_zone = %s", ["+00:00" if zone.upper() in ("UTC", "GMT", "Z") else zone])


def _prepare_sqlite(connection: Any, zone: str) -> None:
    from barnabas.connect.jdbc.columns import sqlite_us

    connection.create_function("barnabas_us", 1, sqlite_us, deterministic=True)
    connection.execute("PRAGMA busy_timeout = 30000")


PREPARE: Final[Mapping[str, Callable[[Any, str], None]]] = {
    "postgresql": _prepare_postgres,
    "mysql": _prepare_mysql,
    "mariadb": _prepare_mysql,
    "sqlite": _prepare_sqlite,
}


def shown(url: sa.URL) -> str:
    """Without the password."""
    return url.render_as_string(hide_password=True)


def message_of(error: BaseException) -> str:
    """The database's message on one line."""
    inner = getattr(error, "orig", None) or error
    if len(inner.args) == 2 and isinstance(inner.args[0], int):  # MySQL's number and text
        return f"{inner.args[1]} ({inner.args[0]})"
    return " ".join(str(inner).split()) or type(inner).__name__


def failed(url: sa.URL, error: Exception, doing: str) -> ConnectError:
    """What to raise for an error of the database: whether it is away, busy, or refuses."""
    text = f"{shown(url)}: {doing}: {message_of(error)}"
    away = isinstance(error, (sa.exc.OperationalError, sa.exc.InterfaceError, OSError))
    refuses = re.search(
        r"password|authenticat|access denied|does not exist|unknown database|unknown column|doesn't exist|permission"
        r"|no such|syntax",
        text,
        re.IGNORECASE,
    )
    if getattr(error, "connection_invalidated", False) or (away and not refuses):
        return RetriableError(text)
    return ConnectError(text)
