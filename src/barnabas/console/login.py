"""Sessions of people who log in with a form; programs log in with each request, as with the other services."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import quote

from starlette.types import Scope

from barnabas.console.oidc import Provider
from barnabas.http.errors import HttpError
from barnabas.http.guard import OPEN_PATHS, Authenticate

COOKIE: Final = "barnabas_console"
SESSION_S: Final = 12 * 3600.0
IDLE_S: Final = 2 * 3600.0
SESSIONS_MAX: Final = 10_000
BEGUN: Final = "barnabas_console_login"
"""The cookie of a browser that is on its way to the identity provider."""
LOGIN: Final = "/login"
MCP: Final = "/mcp"
"""Where assistants send their requests."""


@dataclass(slots=True)
class Session:
    """Somebody who has logged in. Times by the monotonic clock."""

    user: str
    began_s: float
    used_s: float


def cookies_of(scope: Scope) -> Mapping[str, str]:
    """The request's cookies; none if they cannot be parsed."""
    text = "; ".join(value.decode("latin-1") for name, value in scope["headers"] if name == b"cookie")
    try:
        return {name: morsel.value for name, morsel in SimpleCookie(text).items()}
    except CookieError:
        return {}


class Sessions:
    """Who is logged in. users: checks passwords and tokens. provider: where people log in as well. With neither of them
    nobody needs to log in."""

    def __init__(self, users: Authenticate | None, provider: Provider | None = None) -> None:
        self._users = users
        self.provider = provider
        self._secret = secrets.token_bytes(32)
        self._sessions: dict[bytes, Session] = {}

    @property
    def are_needed(self) -> bool:
        return self._users is not None or self.provider is not None

    @property
    def have_passwords(self) -> bool:
        """Whether the form of user and password leads anywhere."""
        return self._users is not None

    async def authenticate(self, scope: Scope) -> str | None:
        """See HttpOptions.authenticate: by cookie, otherwise by the header; a browser is sent to the form."""
        path: str = scope["path"]
        if path in OPEN_PATHS or path == LOGIN or path.startswith(("/static/", LOGIN + "/")):
            return None
        session = self.find(cookies_of(scope))
        if session is not None:
            return session.user
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if b"authorization" in headers:
            return await self._by_header(scope)
        asked = path + ("?" + scope["query_string"].decode("latin-1") if scope["query_string"] else "")
        target = f"{LOGIN}?next={quote(asked, safe='/')}" if scope["method"] == "GET" else LOGIN
        if b"hx-request" in headers:
            raise HttpError(401, "log in again", headers={"hx-redirect": LOGIN})
        if not path.startswith(("/api/", "/openapi.json", MCP)):
            raise HttpError(303, "log in first", headers={"location": target})
        return await self._by_header(scope)

    async def _by_header(self, scope: Scope) -> str | None:
        if self._users is None:
            raise HttpError(401, "log in with a browser: without --users, programs cannot log in")
        return await self._users(scope)

    async def log_in(self, scope: Scope, user: str, password: str) -> str:
        """The value of the cookie. Raises HttpError 401."""
        if self._users is None:
            raise HttpError(401, "there are no passwords here")
        basic = base64.b64encode(f"{user}:{password}".encode("utf-8", "replace"))
        headers = [(b"authorization", b"Basic " + basic)]
        name = await self._users({**scope, "path": "/", "method": "POST", "headers": headers})
        assert name is not None
        return self.open(name)

    def open(self, name: str) -> str:
        """A session of somebody who has proven who they are; the value of the cookie."""
        now_s = time.monotonic()
        self._forget_old(now_s)
        token = secrets.token_urlsafe(32)
        self._sessions[_digest(token)] = Session(name, now_s, now_s)
        return token

    def log_out(self, cookies: Mapping[str, str]) -> None:
        """End the session of a request."""
        self._sessions.pop(_digest(cookies.get(COOKIE, "")), None)

    def find(self, cookies: Mapping[str, str]) -> Session | None:
        """The session of a request; None if there is none, or it has ended."""
        token = cookies.get(COOKIE)
        if not token:
            return None
        session = self._sessions.get(_digest(token))
        now_s = time.monotonic()
        if session is None or _is_over(session, now_s):
            return None
        session.used_s = now_s
        return session

    def stamp(self, cookies: Mapping[str, str]) -> str:
        """What a form of this session has to carry, so that no other page can have made it."""
        return hmac.new(self._secret, cookies.get(COOKIE, "").encode(), hashlib.sha256).hexdigest()

    def is_stamp(self, cookies: Mapping[str, str], stamp: str) -> bool:
        """Whether a form carries the stamp of its session."""
        return hmac.compare_digest(self.stamp(cookies), stamp)

    def _forget_old(self, now_s: float) -> None:
        self._sessions = {
            key: session for key, session in self._sessions.items() if not _is_over(session, now_s)
        }
        while len(self._sessions) >= SESSIONS_MAX:
            oldest = min(self._sessions, key=lambda key: self._sessions[key].used_s)
            del self._sessions[oldest]


def _is_over(session: Session, now_s: float) -> bool:
    return now_s - session.began_s > SESSION_S or now_s - session.used_s > IDLE_S


def _digest(token: str) -> bytes:
    """Sessions are stored by digest: looking one up takes the same time however much of the token is right."""
    return hashlib.sha256(token.encode()).digest()


def safe_target(target: str) -> str:
    """Where to go after the login: an address of the console itself."""
    is_own = target.startswith("/") and not target.startswith(("//", "/\\")) and "\\" not in target
    return target if is_own and target.isprintable() else "/"
