"""Refuses what web pages of other sites send through a user's browser.

A browser lets any page send requests to any address that the user's machine reaches. Two headers tell such requests apart:

* `Origin` (with every POST, PUT and DELETE of a page) and `Sec-Fetch-Site` name the page's site. Only pages of the service
  itself and those of `--cors` may use it.
* `Host` names the server as the page's author wrote it. After DNS rebinding, a page of evil.example reaches this service as
  evil.example, and the browser takes both for the same site: it sends no `Origin`, and lets the page read the answers. So
  the name must be one that strangers cannot register: an address, a name without a dot or of a private domain, a name of
  this machine, the one it listens on, or one of `--allow-host`. Where the service uses TLS, the certificate refuses the
  page; where it asks for a login, the browser has none for the page's site. There every name is accepted.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import urlsplit

from starlette.types import Scope

from barnabas.http.errors import HttpError

ALL: Final = "*"
PRIVATE: Final = (".localhost", ".local", ".internal", ".test", ".home.arpa")
"""Nobody can register names of these domains (RFC 6761, 6762, 8375; ICANN reserved `internal` in 2024)."""
LINKED: Final = frozenset({"/", "/docs"})
"""A link on a page of another site may lead here; the page cannot read what is shown."""
FORMS: Final = frozenset({"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"})
"""Media types that any page may send without the browser asking the service first. The first one is curl's default, too."""
_HOST: Final = re.compile(r"(?:\[([0-9a-f:.%]+)\]|([^\s:/@\[\]]+))(?::(\d{1,5}))?")
_PORTS: Final = {"http": 80, "https": 443}


class Visitors:
    """Decides whose requests are accepted."""

    def __init__(
        self,
        origins: Iterable[str] = (),
        names: Iterable[str] = (),
        *,
        any_name: bool = False,
        is_page: Callable[[Scope], bool] = lambda scope: False,
    ) -> None:
        """origins: of pages, `*` for all. names: of this service; `*` for all, `*.example.com` for all below one.

        any_name: whether the service has TLS or asks for a login. is_page: whether links of other sites may lead to a path.
        """
        self._is_page = is_page
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)
        self._own = {name.lower() for name in names if name}
        self._below = (*PRIVATE, *(name[1:] for name in self._own if name.startswith("*.")))
        self._any_name = any_name or ALL in self._own or ALL in self._origins
        self._own.add(socket.gethostname().lower())

    def learn_full_name(self) -> None:
        """Look up this machine's full name, in a thread of its own: a name server may take seconds to answer."""
        if not self._any_name:
            threading.Thread(target=self.look_up, name="full name", daemon=True).start()

    def look_up(self) -> None:
        self._own.add(socket.getfqdn().lower())

    def check(self, scope: Scope) -> None:
        """Raises HttpError 403 for a request that a page of another site sends, or one under a foreign name."""
        hosts, headers = [], {}
        for name, value in scope["headers"]:
            if name == b"host":
                hosts.append(value.decode("latin-1").lower())
            elif name in (b"origin", b"sec-fetch-site", b"sec-fetch-mode"):
                headers[name] = value.decode("latin-1").lower()
        origin = headers.get(b"origin")
        if origin is not None and not self._may_call(origin, hosts[0] if hosts else ""):
            raise HttpError(403, f"pages of {origin[:100]} may not use this service; --cors would allow it")
        for host in hosts:
            if not self.knows(host):
                shown = host[:100]
                raise HttpError(
                    403,
                    f"{shown!r} is not a name of this service; --allow-host NAME makes it one (DNS rebinding)",
                )
        foreign = headers.get(b"sec-fetch-site") in ("cross-site", "same-site")
        if origin is None and foreign and ALL not in self._origins and not self._is_link(scope, headers):
            raise HttpError(403, "pages of other sites may not use this service; --cors would allow it")

    def _may_call(self, origin: str, host: str) -> bool:
        return ALL in self._origins or origin in self._origins or _is_same(origin, host)

    def _is_link(self, scope: Scope, headers: dict[bytes, str]) -> bool:
        """Whether a user follows a link to a page for people. What is shown in a frame, or loaded, is none."""
        is_read = scope["method"] in ("GET", "HEAD")
        leads = scope["path"] in LINKED or self._is_page(scope)
        return is_read and leads and headers.get(b"sec-fetch-mode") == "navigate"

    def knows(self, host: str) -> bool:
        """Whether a `Host` header is accepted."""
        if self._any_name:
            return True
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        if match[1] is not None:
            return True  # an IPv6 address
        name = match[2].removesuffix(".")
        return "." not in name or name in self._own or name.endswith(self._below) or _is_address(name)


def name_of(address: str) -> str:
    """The host in HOST:PORT or a URL, in lower case; empty if there is none."""
    return (urlsplit(address if "://" in address else f"//{address}").hostname or "").lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_same(origin: str, host: str) -> bool:
    """Whether a page's origin is the server that the request names. A TLS terminator may have removed the `s` of https."""
    parts = urlsplit(origin)
    match = _HOST.fullmatch(host)
    if match is None or parts.hostname is None:
        return False
    default = _PORTS.get(parts.scheme)
    try:
        port = parts.port or default
    except ValueError:
        return False
    named = match[1] or match[2]
    return parts.hostname == named and port == (int(match[3]) if match[3] else default)


def media_type(scope: Scope) -> str:
    """The media type of a request's body, in lower case and without parameters; empty if none is given."""
    content_type = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
    return content_type.decode("latin-1").partition(";")[0].strip().lower()


def refuse_form(scope: Scope, wanted: str) -> None:
    """Raises HttpError 415 for a form. wanted: the media type to send instead."""
    content_type = media_type(scope)
    if content_type in FORMS and scope["method"] not in ("GET", "HEAD", "OPTIONS"):
        raise HttpError(415, f"content type {content_type} is not accepted here; send {wanted}")
