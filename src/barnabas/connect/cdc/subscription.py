"""One address of a database as a connector for its changes: `barnabas connect create --from`. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from barnabas.connect.errors import OptionError

Config = dict[str, str]
UNWRAP: Final = {
    "transforms": "unwrap",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
    "transforms.unwrap.delete.tombstone.handling.mode": "tombstone",
}


def subscription(
    url: str, tables: Sequence[str], prefix: str | None = None, *, rows: bool = False
) -> tuple[str, Config]:
    """A name for the connector, and its options. tables: none for all; a table without its schema is in `public`, or in the
    database of the address. prefix: of the topics; None: the database's name. rows: values are rows, and null for deletes,
    instead of Debezium's events. Raises OptionError."""
    parts = urlsplit(url)
    make = KINDS.get(parts.scheme.partition("+")[0])
    if make is None or not parts.hostname:
        kinds = ", ".join(f"{kind}://" for kind in KINDS)
        raise OptionError(
            f"--from {_shown(url)}: an address like {kinds} with user:password@host:port/database"
        )
    database = unquote(parts.path.lstrip("/"))
    if not database:
        raise OptionError(
            f"--from {_shown(url)}: the database is missing: {parts.scheme}://{parts.hostname}/DATABASE"
        )
    chosen = prefix or re.sub(r"[^\w.\-]", "_", database, flags=re.ASCII)
    config = make(parts, database, [table for table in tables if table], chosen)
    if rows:
        config |= _rows(parts.scheme)
    return f"{chosen}-changes", config


def _shown(url: str) -> str:
    """Without user and password."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def _rows(scheme: str) -> Config:
    return {"publish.full.document.only": "true", "publish.full.document.only.tombstone.on.delete": "true"} if (
        scheme.startswith("mongodb")
    ) else dict(UNWRAP)  # fmt: skip


def _login(parts: SplitResult, port: int) -> Config:
    if not parts.username:
        raise OptionError(
            f"--from {_shown(parts.geturl())}: the user is missing: {parts.scheme}://USER:PASSWORD@..."
        )
    try:
        config = {
            "database.hostname": parts.hostname or "",
            "database.port": str(parts.port or port),
            "database.user": unquote(parts.username),
        }
    except ValueError as error:
        raise OptionError(f"--from {_shown(parts.geturl())}: {error}") from None
    if parts.password:
        config["database.password"] = unquote(parts.password)
    return config


def _listed(tables: Sequence[str], outer: str) -> str:
    """Patterns for tables, which are in `outer` unless they say where. * stands for any letters."""
    whole = [table if "." in table else f"{outer}.{table}" for table in tables]
    return ",".join(re.escape(table).replace(r"\*", ".*") for table in whole)


def _postgres(parts: SplitResult, database: str, tables: Sequence[str], prefix: str) -> Config:
    slot = f"barnabas_{re.sub(r'[^a-z0-9_]', '_', prefix.lower())}"[:63]
    config = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        **_login(parts, 5432),
        "database.dbname": database,
        "topic.prefix": prefix,
        "slot.name": slot,
        "publication.name": slot,
        "publication.autocreate.mode": "filtered",
    }
    mode = dict(pair.partition("=")[::2] for pair in parts.query.split("&")).get("sslmode")
    if mode:
        config["database.sslmode"] = mode
    return config | ({"table.include.list": _listed(tables, "public")} if tables else {})


def _mysql(parts: SplitResult, database: str, tables: Sequence[str], prefix: str) -> Config:
    maria = parts.scheme.startswith("mariadb")
    name = "mariadb.MariaDbConnector" if maria else "mysql.MySqlConnector"
    return {
        "connector.class": f"io.debezium.connector.{name}",
        **_login(parts, 3306),
        "topic.prefix": prefix,
        "database.include.list": re.escape(database),
        **({"table.include.list": _listed(tables, database)} if tables else {}),
    }


def _mongodb(parts: SplitResult, database: str, tables: Sequence[str], prefix: str) -> Config:
    config = {
        "connector.class": "com.mongodb.kafka.connect.MongoSourceConnector",
        "connection.uri": parts._replace(path="/").geturl(),
        "database": database,
        "startup.mode": "copy_existing",
        "topic.prefix": prefix,
        "output.json.formatter": "com.mongodb.kafka.connect.source.json.formatter.SimplifiedJson",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    }
    if len(tables) == 1:
        config["collection"] = tables[0]
    elif tables:
        config["pipeline"] = json.dumps([{"$match": {"ns.coll": {"$in": list(tables)}}}])
    return config


KINDS: Final[Mapping[str, Callable[[SplitResult, str, Sequence[str], str], Config]]] = {
    "postgresql": _postgres,
    "postgres": _postgres,
    "mysql": _mysql,
    "mariadb": _mysql,
    "mongodb": _mongodb,
}
