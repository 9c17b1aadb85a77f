"""The server's side of SASL: one small state machine for each login, without sockets (see broker/api/login.py)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import NamedTuple, Protocol


class SaslError(Exception):
    """A login is refused. The message is sent to the client, and never says whether user or password was wrong."""


class Outcome(NamedTuple):
    """The result of one token from a client.

    reply: the token that answers it. user: the user who has logged in, None if more tokens are to come. expires_ms:
    wall-clock time at which the credentials expire, None if they do not. by_token: whether they are a delegation token.
    is_last_word: whether the mechanism ends with a token from the server. If it does not, clients that send bare tokens
    (without requests around them) expect none, and would take an empty one for the beginning of the next response.
    """

    reply: bytes
    user: str | None = None
    expires_ms: int | None = None
    by_token: bool = False
    is_last_word: bool = True


class Exchange(Protocol):
    """One login by one mechanism."""

    claimed: str
    """The user that the client claims to be, for the log; empty until the client has named one."""

    def step(self, token: bytes) -> Outcome | Awaitable[Outcome]:
        """Process the client's next token. Raises SaslError."""
