"""What to do about the error of a connector or a task."""

from __future__ import annotations

import re
from typing import Final

from barnabas.console.said import Said, said

CAUSED: Final = re.compile(r"^\s*Caused by: (.+)$", re.MULTILINE)
ADVICE: Final = (
    (
        r"authenticat|password|access denied|permission denied|not authorized|unauthorized|sasl",
        said("Correct the user and the password or key in the options, or the rights of that user."),
    ),
    (
        r"unknown ?host|name or service not known|connection refused|could not connect|cannot connect|timed? ?out|timeout"
        r"|unreachable|communications link",
        said(
            "Check that the other system runs, and that the host of the worker reaches it at the address in the options."
        ),
    ),
    (
        r"no such file|does not exist|not found|no such table|unknown topic|missing",
        said("Create what is missing, or correct its name in the options."),
    ),
    (
        r"converter|converting|deserializ|serializ|schema|dataexception|json|avro|utf-8",
        said(
            "The records do not fit the converter. Choose the one that they were written with (value.converter), or let "
            "records that fail go to a topic (errors.tolerance=all, errors.deadletterqueue.topic.name)."
        ),
    ),
    (
        r"outofmemory|memory",
        said("Give the worker more memory, or lower the sizes of batches in the options."),
    ),
)
OTHERWISE: Final = said("Read the error and mend its cause.")


def first_line(trace: str | None) -> str | None:
    """The error itself, without the lines that say where it was raised: the last cause if there is one."""
    if not trace:
        return None
    causes = CAUSED.findall(trace)
    lines = trace.strip().splitlines()
    if causes:
        return str(causes[-1])[:500]
    if lines[0].startswith("Traceback"):  # Python names the error last
        return lines[-1].strip()[:500]
    return lines[0].strip()[:500]


def advice_of(trace: str) -> Said:
    """What to do about it, as far as its words tell."""
    words = f"{first_line(trace)} {trace.splitlines()[0]}".lower()
    return next((text for pattern, text in ADVICE if re.search(pattern, words)), OTHERWISE)
