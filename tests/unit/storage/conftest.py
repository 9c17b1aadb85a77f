"""Storage tests wait for no disk: what a sync makes durable is shown by the simulated disk in power.py."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda fd: None)
        patched.setattr(os, "fdatasync", lambda fd: None)
        yield
