"""How many files and sockets the process may have open."""

from __future__ import annotations

import contextlib
import resource
import sys


def allow_all_files() -> None:
    """Raise the limit of open files to the hard limit (the soft limit exists for programs that use select)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard if _count(soft) < _count(hard) else soft, hard))


def files_allowed() -> int:
    """The number of files and sockets that this process may have open."""
    return _count(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _count(limit: int) -> int:
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit
