"""SASL, the server's side: one small state machine for each login, without sockets (broker/api/login.py has those)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import NamedTuple, Protocol


class SaslError(Exception):
    """A login is refused; the text is what the client reads. It never says which of user and password was wrong."""


class Outcome(NamedTuple):
    """What one token of a client led to.

    reply: the token that answers it. user: who has logged in, None while more tokens are to come. expires_ms: wall-clock
    time at which the credentials end, None when they do not. by_token: whether they are a delegation token.
    is_last_word: whether the mechanism has the server speak last. Where it has not, clients that send tokens without a
    request around them wait for nothing, and would take an empty token for the beginning of their next answer.
    """

    reply: bytes
    user: str | None = None
    expires_ms: int | None = None
    by_token: bool = False
    is_last_word: bool = True


class Exchange(Protocol):
    """One login by one mechanism."""

    claimed: str
    """Whom the client says to be, as far as it has said so: for the log."""

    def step(self, token: bytes) -> Outcome | Awaitable[Outcome]:
        """Take the client's next token. Raises SaslError."""
