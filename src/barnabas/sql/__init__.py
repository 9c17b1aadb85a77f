"""SQL on streams from Python: `connect` (PEP 249) and its exceptions. alchemy.py is a dialect of SQLAlchemy
(`barnabas://HOST:8088`), magic.py a command of Jupyter notebooks (`%%barnabas_sql`)."""

from barnabas.sql.dbapi import Connection, Cursor, apilevel, connect, paramstyle, threadsafety
from barnabas.sql.errors import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Warning,
)

__all__ = [
    "Connection",
    "Cursor",
    "DataError",
    "DatabaseError",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "Warning",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]
