"""The columns of frames that are not fields."""

from __future__ import annotations

from typing import Final

from barnabas.pipelines.formats.columns import DDL_TYPES
from barnabas.pipelines.spark.frame import (
    CHANGE,
    CHANGE_TYPE,
    DELETED,
    ERROR_TYPE,
    ID,
    OPEN,
    OPEN_TYPE,
    RECORD_COLUMNS,
    ROW,
    SENT,
    SIGN,
    TEXT,
)

EVENT: Final = "_event"
"""The column with a row's event time, for which Spark keeps a watermark."""
SKIPPED: Final = "_skipped"
HIDDEN: Final = {
    **{name: DDL_TYPES[name[1:]] for name in RECORD_COLUMNS},
    "_error": ERROR_TYPE,
    TEXT: "string",
    SENT: DDL_TYPES["headers"],
    SKIPPED: "boolean",
    ROW: "string",
    OPEN: OPEN_TYPE,
    DELETED: "boolean",
    SIGN: "int",
    CHANGE: CHANGE_TYPE,
    ID: "binary",
}
"""The columns that are not fields, and their types."""
