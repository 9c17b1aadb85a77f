"""PLAIN (RFC 4616): user and password in plain text, checked against JAAS options or by a Python function.

The function is named by `listener.name.X.plain.sasl.server.callback.handler.class=MODULE:FUNCTION`. It is called as
f(user, password), in a thread unless it is a coroutine function, and returns whether the password is the user's.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import hmac
import importlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from barnabas.config.option import ConfigError
from barnabas.security.sasl import Outcome, SaslError

log = logging.getLogger("barnabas.login")

REFUSED: Final = "Authentication failed: Invalid username or password"
MESSAGE_BYTES_MAX: Final = 1 << 16
"""Of the client's message. Passwords can be long: some installations use tokens."""
NAME_CHARS_MAX: Final = 512
ANSWER_S_MAX: Final = 30.0
"""How long the function may take."""

Check = Callable[[str, str], bool | Awaitable[bool]]


class Plain:
    """See Exchange."""

    def __init__(self, check: Check) -> None:
        self.claimed = ""
        self._check = check

    def step(self, token: bytes) -> Outcome | Awaitable[Outcome]:
        if len(token) > MESSAGE_BYTES_MAX:
            raise SaslError(f"Invalid SASL/PLAIN response: it is longer than {MESSAGE_BYTES_MAX} bytes")
        try:
            parts = token.decode("utf-8").split("\0", 3)
        except UnicodeDecodeError:
            raise SaslError("Invalid SASL/PLAIN response: it is not UTF-8") from None
        if len(parts) != 3:
            count = token.count(b"\0") + 1
            raise SaslError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {count}")
        other, user, password = parts
        if len(user) > NAME_CHARS_MAX:
            raise SaslError(REFUSED)
        self.claimed = user
        if not user:
            raise SaslError("Authentication failed: username not specified")
        if not password:
            raise SaslError("Authentication failed: password not specified")
        if other and other != user:
            raise SaslError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        verdict = self._check(user, password)
        if inspect.isawaitable(verdict):
            return self._later(user, verdict)
        return self._outcome(user, bool(verdict))

    async def _later(self, user: str, verdict: Awaitable[bool]) -> Outcome:
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                return self._outcome(user, bool(await verdict))
        except SaslError:
            raise
        except Exception as error:
            # The text of the error is not logged: it may contain the password.
            log.error(
                "the function that checks passwords failed; the login is refused",
                extra={"user": user, "error": type(error).__name__},
            )
            raise SaslError(REFUSED) from None

    @staticmethod
    def _outcome(user: str, is_right: bool) -> Outcome:
        if not is_right:
            raise SaslError(REFUSED)
        return Outcome(b"", user)


def check_of(users: Mapping[str, str]) -> Check:
    """A check against these users (user -> password), which does the same work for an unknown user."""

    def digest(text: str) -> bytes:
        return hashlib.sha256(text.encode()).digest()

    known = {user: digest(password) for user, password in users.items()}
    nobody = digest("")

    def check(user: str, password: str) -> bool:
        expected = known.get(user)
        is_same = hmac.compare_digest(digest(password), nobody if expected is None else expected)
        return is_same and expected is not None

    return check


def check_named(option: str, name: str) -> Check:
    """A check that calls the function `name`, MODULE:FUNCTION. option: for messages. Raises ConfigError."""
    module_name, _, attribute = name.partition(":")
    try:
        target: Any = functools.reduce(getattr, attribute.split("."), importlib.import_module(module_name))
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{option}: {name} cannot be loaded: {error}") from None
    if not callable(target):
        raise ConfigError(f"{option}: {name} is not a function of user and password")
    if inspect.iscoroutinefunction(target):
        decide: Check = target
        return decide

    def check(user: str, password: str) -> Awaitable[bool]:
        return asyncio.get_running_loop().run_in_executor(None, target, user, password)

    return check
