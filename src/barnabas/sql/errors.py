"""The exceptions of PEP 249."""

from __future__ import annotations


class Warning(Exception):
    """Part of PEP 249; never raised."""


class Error(Exception):
    """Whatever goes wrong."""


class InterfaceError(Error):
    """The library is used in a way that it is not made for."""


class DatabaseError(Error):
    """The server, or a statement."""


class DataError(DatabaseError):
    """A value that cannot be sent."""


class OperationalError(DatabaseError):
    """The server is not there, does not answer, or a query of it has failed."""


class IntegrityError(DatabaseError):
    """Part of PEP 249; never raised."""


class InternalError(DatabaseError):
    """The server answers with what cannot be read."""


class ProgrammingError(DatabaseError):
    """A statement that the server refuses; the message may have several lines, the last with a caret below the mistake."""


class NotSupportedError(DatabaseError):
    """What streams and tables do not have, like transactions that are rolled back."""
