"""New ids, from an object that is passed around: production asks the machine, a simulation its seed."""

from __future__ import annotations

import secrets
import uuid
from typing import Protocol


class Entropy(Protocol):
    def uuid(self) -> uuid.UUID:
        """A random (version 4) id."""
        ...

    def below(self, limit: int) -> int:
        """A random number from 0 up to, not including, `limit`."""
        ...

    def secret(self) -> bytes:
        """Text of 43 characters that nobody else can know."""
        ...


class SystemEntropy:
    """The machine's own randomness, which is unpredictable."""

    def uuid(self) -> uuid.UUID:
        return uuid.uuid4()

    def below(self, limit: int) -> int:
        return secrets.randbelow(limit)

    def secret(self) -> bytes:
        return secrets.token_urlsafe(32).encode()
