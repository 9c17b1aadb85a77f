"""How much of what could be tried is tried: some of it in every run, all of it in `make soak`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Final

import pytest

THOROUGH: Final = "BARNABAS_TEST_THOROUGH"
"""The environment variable with which `make soak` asks for all."""


def examples(all_of_them: int) -> int:
    """A quarter by default, and 20 at least."""
    return all_of_them if os.environ.get(THOROUGH) else min(all_of_them, max(all_of_them // 4, 20))


def one_in(every: int, parameters: Iterable[Any]) -> list[Any]:
    """Of a test's parameters, the first and then every so many-th by default; the others run in `make soak`."""
    return [
        one
        if number % every == 0
        else pytest.param(*(one if type(one) is tuple else (one,)), marks=pytest.mark.soak)
        for number, one in enumerate(parameters)
    ]
