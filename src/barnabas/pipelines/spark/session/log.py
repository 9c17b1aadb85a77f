"""Reads Spark's log: why Java or Spark did not start. Pure functions over its text."""

from __future__ import annotations

import re
from typing import Final

MEMORY: Final = (
    "Could not reserve enough space",
    "insufficient memory",
    "Cannot allocate memory",
    "Invalid maximum heap size",
    "OutOfMemoryError",
)
_CAUSE: Final = re.compile(
    r"^(?:: |Caused by: |Exception in thread \"[^\"]*\" )?"
    r"((?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error))(?:: (.+))?$"
)
_UNKNOWN_HOST: Final = re.compile(r"UnknownHostException: ([^\s:]+): ")


def start_reason(text: str) -> str:
    """Why Java ended or Spark did not start, and what to do, in one line. text: what they printed; may be empty."""
    host = _UNKNOWN_HOST.search(text)
    if host is not None:
        return (
            f"the host name {host[1]!r} cannot be resolved: add it to /etc/hosts, or set SPARK_LOCAL_IP to an "
            f"address of this host"
        )
    if "UnsupportedClassVersionError" in text:
        return "this Java is too old: Spark needs Java 17 or newer"
    for line in text.splitlines():
        if any(sign in line for sign in MEMORY):
            return f"not enough memory for Java ({line.strip()}): free some, or lower spark.driver.memory"
    found = [match for match in map(_CAUSE.match, map(str.strip, text.splitlines())) if match]
    if found:
        name = found[-1][1].rpartition(".")[2]
        return f"{name}: {found[-1][2]}" if found[-1][2] else name
    said = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("WARNING: ")]
    return said[-1] if said else "it printed no reason; Spark needs Java 17 or newer and enough memory"
