"""What the schema languages have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import pyarrow as pa

from barnabas.schemas.framing import Schema

VALUE: Final = "value"
"""The name of the only field if a schema is not that of a record, as those of keys often are."""
Convert = Callable[[Any], Any] | None
"""Converts a decoded value to one that pyarrow accepts; None if pyarrow accepts all of them."""


class Unfit(ValueError):
    """Bytes or values that do not suit their schema; the message says why."""


class NoColumns(ValueError):
    """A schema that cannot be represented by columns; the message says why."""


class Reader(Protocol):
    """Reads records into columns of the schema that it was made of, whichever version they were written with.

    type: the columns, as a struct. read_type: the type of the rows that are read, which can be cast to `type`.
    """

    type: pa.StructType
    read_type: pa.StructType

    def decoder(self, writer: Schema) -> Callable[[bytes], Any]:
        """A function that decodes payloads of the writer's schema to rows, or raises Unfit. Raises Unfit."""
        ...

    def columns(self, records: pa.Array) -> pa.StructArray | None:
        """The rows, of `read_type`, if all records are intact and of the reader's own schema, and this is quicker;
        otherwise None, and `decoder` is used for each record."""
        ...
