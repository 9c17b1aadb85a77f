"""How many examples property tests try: few in every run, all of them in `make soak`."""

from __future__ import annotations

import os
from typing import Final

THOROUGH: Final = "BARNABAS_TEST_THOROUGH"
"""The environment variable with which `make soak` asks for all."""


def examples(all_of_them: int) -> int:
    """A quarter by default, and 20 at least."""
    return all_of_them if os.environ.get(THOROUGH) else min(all_of_them, max(all_of_them // 4, 20))
