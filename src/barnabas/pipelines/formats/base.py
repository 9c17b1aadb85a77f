"""What the schema languages have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa

from barnabas.client.registry import Schema

Convert = Callable[[Any], Any] | None
"""Makes of a decoded value what pyarrow takes; None where it is that already."""


class Unfit(ValueError):
    """Bytes or values that do not suit their schema; the message says why."""


class NoColumns(ValueError):
    """A schema that cannot be columns; the message names the place."""


class Reader(Protocol):
    """Reads records into columns of the schema that it was made of, whichever version wrote them.

    type: of the columns, a struct. read_type: what `decode` gives, which may be cast to it.
    """

    type: pa.StructType
    read_type: pa.StructType

    def decoder(self, writer: Schema) -> Callable[[bytes], Any]:
        """What decodes the payloads of a writer's schema to rows, and raises Unfit. Raises Unfit."""
        ...

    def columns(self, records: pa.Array) -> pa.StructArray | None:
        """The rows, of read_type, of records that are all whole and of the reader's own schema, where that is quicker; else
        None, and `decoder` looks at each."""
        ...
