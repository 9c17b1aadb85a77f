"""Reads Spark's log: why Java or Spark did not start, why a query failed, what was logged about a pipeline. Pure
functions over its text.

The layout of an entry is declared in log4j2.properties. In square brackets it has the pipeline and the query, which the
supervisor gives to the threads and tasks of a query, and Spark's own id of the query:

    2026-01-31T12:00:00.123Z ERROR Executor [shop/topics/] Exception in task 0.0 in stage 1.0 (TID 3)
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
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
    matches = [match for match in map(_CAUSE.match, map(str.strip, text.splitlines())) if match]
    if matches:
        name = matches[-1][1].rpartition(".")[2]
        return f"{name}: {matches[-1][2]}" if matches[-1][2] else name
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("WARNING: ")]
    return lines[-1] if lines else "it printed no reason; Spark needs Java 17 or newer and enough memory"


_NAMED: Final = re.compile(
    r"^(?:Caused by: |: )?([A-Za-z_][\w.$]*(?:Error|Exception|Lost|Topic|OutOfRange|Unavailable|Failed)): (.+)$"
)
_OURS: Final = (
    "DataLost",
    "OptionError",
    "UnknownTopic",
    "OffsetOutOfRange",
    "DeliveryError",
    "AuthenticationFailed",
    "TransactionLost",
    "SinkError",
)
_WRAPPERS: Final = (
    "StreamingQueryException",
    "Py4JException",
    "SparkException",
    "Py4JJavaError",
    "AnalysisException",
)


_EMPTY: Final = (
    "raised by the Python Proxy",
    "Job aborted",
    "terminated with exception",
    "Exception thrown in awaitResult",
)
"""Messages that only say that there was another error."""


def failure_reason(text: str) -> str:
    """The cause of a Spark failure in one line: an error of this package if there is one, else the most precise."""
    causes: list[tuple[str, str]] = []
    for line in text.splitlines():
        match = _NAMED.match(line.strip())
        if match:
            causes.append((match[1].rpartition(".")[2], match[2]))
    for name, reason in causes:
        if name in _OURS or name.startswith("Broker"):
            return reason
    causes = [(name, reason) for name, reason in causes if not any(text in reason for text in _EMPTY)]
    precise = [f"{name}: {reason}" for name, reason in causes if name not in _WRAPPERS]
    if precise:
        return _with_address(precise)
    if causes:
        return causes[-1][1]
    first = next((line.strip() for line in text.splitlines() if line.strip()), "no reason was given")
    return first.partition("terminated with exception: ")[2] or first


_ADDRESS: Final = re.compile(r" to \S*[\w\]]:\d+\b|https?://\S+:\d+")
_CONNECTING: Final = re.compile(r"[Cc]onnection refused|timed out|unreachable|[Cc]onnection reset")


def _with_address(reasons: list[str]) -> str:
    """The last of several reasons, each the cause of the one before, unless it is a failed connection to an address that an
    earlier one names: Hadoop's innermost cause says `Connection refused` alone.
    """
    last = reasons[-1]
    if _CONNECTING.search(last) and not _ADDRESS.search(last):
        last = next((reason for reason in reversed(reasons) if _ADDRESS.search(reason)), last)
    return last.partition("; For more details see")[0]


_ENTRY: Final = re.compile(
    r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) ([A-Z]+) (\S+) \[([^/\]]*)/([^/\]]*)/([^/\]]*)\] (.*)$"
)
_CLASS: Final = re.compile(r":? ?(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error)\b")
_MARKS: Final = re.compile(r"\[(?:queryId|batchId) = \w+\] ")
_WORKER_SAID: Final = "Traceback (most recent call last):"
"""The beginning of what Python workers print: it comes between the entries of Java and belongs to none of them."""
_ECHOES: Final = ("DataWritingSparkTask", "WriteToDataSourceV2Exec", "Utils")
"""Loggers that say once more that a task or a write was aborted."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of Spark's log. at: ISO 8601, UTC. pipeline, query, query_id: empty where unknown. text: all lines."""

    at: str
    level: str
    logger: str
    pipeline: str
    query: str
    query_id: str
    text: str

    def concerns(self, pipeline: str, queries: Collection[str]) -> bool:
        """Whether the entry is about a pipeline. queries: Spark's ids of its queries."""
        if self.pipeline:
            return self.pipeline == pipeline
        if self.query_id:
            return self.query_id in queries
        return any(self.text.startswith(f"[queryId = {known[:5]}]") for known in queries)

    @property
    def cause(self) -> str:
        """The error in the entry, without what happened because of it; empty if there is none."""
        lines = self.text.splitlines()
        match = _CLASS.search(lines[0])
        rest = [lines[0][match.start() :].lstrip(": ")] if match else []
        return failure_reason("\n".join(rest + lines[1:])) if rest or len(lines) > 1 else ""

    @property
    def line(self) -> str:
        """What happened and its cause, in one line."""
        first = _CLASS.split(_MARKS.sub("", self.text.splitlines()[0]), maxsplit=1)[0].rstrip()
        return f"{first}: {self.cause}" if self.cause else first


def entries(text: str) -> Iterator[Entry]:
    """The entries of a part of the log. Lines before the first entry are skipped."""
    head: re.Match[str] | None = None
    lines: list[str] = []
    for line in text.splitlines():
        match = _ENTRY.match(line)
        if match is None and line != _WORKER_SAID:
            lines.append(line)
            continue
        if head is not None:
            yield _entry(head, lines)
        head, lines = match, []
    if head is not None:
        yield _entry(head, lines)


def _entry(head: re.Match[str], lines: list[str]) -> Entry:
    at, level, logger, pipeline, query, query_id, first = head.groups()
    return Entry(at, level, logger, pipeline, query, query_id, "\n".join([first, *lines]))


def telling(log_entries: Iterable[Entry]) -> Iterator[Entry]:
    """The entries without those that only repeat the one before: Spark logs an error of a task in several places."""
    before: tuple[str, str] | None = None
    for entry in log_entries:
        same = (entry.query, entry.cause)
        if entry.logger in _ECHOES or (entry.cause and same == before):
            continue
        before = same
        yield entry
