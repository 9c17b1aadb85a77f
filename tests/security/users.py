"""A function that a broker of the tests asks whether user and password belong together."""

from __future__ import annotations

import time


def check(user: str, password: str) -> bool:
    """Slow, as a directory may be; breaks for one user."""
    if user == "breaks":
        raise RuntimeError(f"no answer about {user} with {password}")
    time.sleep(0.05)
    return user.startswith("called-") and password == user[::-1]
