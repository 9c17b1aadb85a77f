"""Lines that container engines write: Docker's JSON files, and those of CRI (containerd, CRI-O).

A long line of a container is in several lines of the file; all but the last are marked as parts.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

CRI: Final = re.compile(rb"(\d{4}-\d\d-\d\dT\S+) (stdout|stderr) ([FP])\S*(?: (.*))?$", re.DOTALL)
KUBERNETES: Final = re.compile(
    r"/(?P<pod>[^/_]+)_(?P<namespace>[^/_]+)_(?P<container>.+)-(?P<id>[0-9a-f]{64})\.log$"
)
DOCKER: Final = re.compile(r"/(?P<id>[0-9a-f]{64})-json\.log")
DEFAULT_FILES: Final = ("/var/log/containers/*.log", "/var/lib/docker/containers/*/*-json.log")


class ContainerLine(NamedTuple):
    """What a container has written. is_part: the line goes on in the next one. extra: what is known about it."""

    text: bytes
    is_part: bool
    extra: dict[str, Any]


def parse(line: bytes) -> ContainerLine:
    """One line of a file; a line in another format is taken as it is."""
    match = CRI.match(line)
    if match is not None:
        extra = {"@timestamp": time_of(match[1].decode()), "stream": match[2].decode()}
        return ContainerLine(match[4] or b"", match[3] == b"P", extra)
    if line.startswith(b"{"):
        try:
            read = json.loads(line)
            text = read["log"]
            extra = {"stream": str(read.get("stream", "stdout"))}
            if "time" in read:
                extra["@timestamp"] = time_of(str(read["time"]))
            return ContainerLine(
                text.removesuffix("\n").encode("utf-8", "replace"), not text.endswith("\n"), extra
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            pass
    return ContainerLine(line, False, {})


def time_of(text: str) -> str:
    """A time with nanoseconds, as events have it."""
    match = re.match(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,3}))?\d*Z$", text)
    return f"{match[1]}.{(match[2] or ''):0<3}Z" if match else text


def named(path: str) -> dict[str, Any]:
    """What the name of a file tells about its container."""
    match = KUBERNETES.search(path)
    if match is not None:
        return {
            "container": {"id": match["id"]},
            "kubernetes": {
                "pod": {"name": match["pod"]},
                "namespace": match["namespace"],
                "container": {"name": match["container"]},
            },
        }
    match = DOCKER.search(path)
    return {} if match is None else {"container": {"id": match["id"]}}
