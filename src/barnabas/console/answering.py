"""Routes: each page as HTML and as JSON, each change as a form and as a JSON object; login, preferences, static files."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, quote, unquote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from barnabas.console.asking import Ask, Done
from barnabas.console.audit import Audit
from barnabas.console.clusters import Cluster
from barnabas.console.failures import refusal_of
from barnabas.console.login import BEGUN, COOKIE, LOGIN, SESSION_S, Sessions, safe_target
from barnabas.console.oidc import BACK, PENDING_S
from barnabas.console.pages import PAGES, SECTIONS
from barnabas.console.records.masking import Masking
from barnabas.console.rendering import (
    asset_version,
    encoded,
    json_bytes,
    make_environment,
    translated,
)
from barnabas.console.roles import Role, Roles, require
from barnabas.console.said import Refused, Said, said
from barnabas.console.site import Action, Page, Stream
from barnabas.console.words import LANGUAGES, NAMES, chosen
from barnabas.http import openapi
from barnabas.http.bodies import json_object, read_body
from barnabas.http.errors import HttpError
from barnabas.http.visitors import media_type

log = logging.getLogger("barnabas.console")

STATIC: Final = Path(__file__).parent / "static"
TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SAFE: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # without any, browsers name no origin with their forms either
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
}
THEMES: Final = ("auto", "light", "dark")
NOTE: Final = "barnabas_note"
YEAR_S: Final = 365 * 24 * 3600
FIELDS_MAX: Final = 2_000
API: Final = "/api/v1"


class Console:
    """Everything that requests share."""

    def __init__(
        self,
        clusters: Mapping[str, Cluster],
        sessions: Sessions,
        roles: Roles,
        audit: str | None,
        masking: Masking,
        *,
        is_secure: bool,
    ) -> None:
        self.clusters = clusters
        self.sessions = sessions
        self.roles = roles
        self.masking = masking
        self.audit = Audit(audit)
        self.is_secure = is_secure
        self.templates = make_environment()

    async def close(self) -> None:
        """Close the connections to all clusters."""
        for cluster in self.clusters.values():
            await cluster.close()

    def cookie(self, response: Response, name: str, value: str, max_age_s: int | None) -> None:
        """Set a cookie that scripts cannot read and other sites' forms do not send."""
        response.set_cookie(
            name, value, max_age=max_age_s, path="/", secure=self.is_secure, httponly=True, samesite="lax"
        )


class Exchange:
    """One request with what it needs to be answered as HTML."""

    def __init__(self, console: Console, request: Request) -> None:
        self.console = console
        self.request = request
        self.user: str | None = getattr(request.state, "user", None)
        self.cookies = request.cookies
        self.lang = chosen(self.cookies.get("lang", ""), request.headers.get("accept-language", ""))
        theme = self.cookies.get("theme", "auto")
        self.theme = theme if theme in THEMES else "auto"

    @property
    def origin(self) -> str:
        """Where the browser reaches the console."""
        return str(self.request.base_url).rstrip("/")

    def cluster(self) -> Cluster:
        """The cluster of the path. Raises Refused."""
        name = _name(self.request.path_params["cluster"])
        cluster = self.console.clusters.get(name)
        if cluster is None or not self.console.roles.may_see(self.user, name):
            raise Refused(404, said("There is no cluster {name} here", name=name[:100]))
        return cluster

    def ask(self, cluster: Cluster, fields: Mapping[str, Any]) -> Ask:
        """What the request asks for."""
        path = {name: _name(text) for name, text in self.request.path_params.items() if name != "cluster"}
        roles, user = self.console.roles, self.user
        cluster.visited()
        return Ask(
            cluster,
            path,
            fields,
            user,
            lambda name: roles.role(user, cluster.name, name),
            self.console.masking,
        )

    def render(self, template: str, status: int = 200, **values: Any) -> Response:
        """A page. Its cookies tell language and theme."""
        visible = [c for c in self.console.clusters.values() if self.console.roles.may_see(self.user, c.name)]
        note = self.cookies.get(NOTE)
        context: dict[str, Any] = {
            "lang": self.lang, "theme": self.theme, "languages": NAMES, "user": self.user, "clusters": visible,
            "cluster": None, "section": "", "sections": SECTIONS, "query": {}, "stamp": self.stamp(), "error": None,
            "note": unquote(note) if note else None, "form": {}, "done": None, "data": None, "failures": [],
            "here": self.request.url.path + ("?" + self.request.url.query if self.request.url.query else ""),
            "origin": self.origin, "assets": asset_version(), "api": None,
            "Role": Role, "role": Role.READ, "sessions": self.console.sessions,
        }  # fmt: skip
        context.update(values)
        text = self.console.templates.get_template(template).render(context)
        response = Response(text.encode("utf-8", "replace"), status, SAFE, "text/html; charset=utf-8")
        response.headers["cache-control"] = "no-store"
        response.headers["vary"] = "Cookie, Accept-Language, HX-Request"
        if note:
            response.delete_cookie(NOTE, path="/")
        return response

    def stamp(self) -> str:
        """Carried by every form."""
        return self.console.sessions.stamp(self.cookies)

    async def form(self) -> dict[str, Any]:
        """The fields of a form. Raises Refused if it is not one that this console has made."""
        if media_type(self.request.scope) != "application/x-www-form-urlencoded":
            raise Refused(415, said("This is not a form; programs use {path}", path=API))
        body = await read_body(self.request)
        try:
            fields = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX)
        except ValueError:
            raise Refused(400, said("The form cannot be read")) from None
        if not self.console.sessions.is_stamp(self.cookies, (fields.pop("stamp", [""]))[0]):
            raise Refused(
                403,
                said("The form is of an earlier session"),
                said("Reload the page, and send it once more."),
            )
        return {name: values[0] if len(values) == 1 else values for name, values in fields.items()}


def _name(part: str) -> str:
    """A name from a part of a path."""
    name = unquote(part)
    return "" if name == "\x00" else name


def _query(request: Request) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name in request.query_params:
        values = request.query_params.getlist(name)
        fields[name] = values[0] if len(values) == 1 else values
    return fields


def _refused(error: Exception) -> Refused:
    """The error as a refusal; raises it again if it is the console's own."""
    refusal = refusal_of(error)
    if refusal is None:
        raise error
    return refusal


def _failure(refused: Refused) -> dict[str, Any]:
    advice = {} if refused.advice is None else {"advice": str(refused.advice)}
    return {"error_code": refused.status, "message": str(refused.reason), **advice}


def _json(value: Any, status: int = 200) -> Response:
    return Response(json_bytes(value), status, {**SAFE, "cache-control": "no-store"}, "application/json")


class PageAnswers:
    """Answers the requests to one page."""

    def __init__(self, console: Console, page: Page) -> None:
        self.console = console
        self.page = page

    async def html(self, request: Request) -> Response:
        """The page."""
        exchange = Exchange(self.console, request)
        return await self._shown(exchange, _query(request))

    async def _shown(
        self,
        exchange: Exchange,
        query: Mapping[str, Any],
        *,
        error: Refused | None = None,
        form: Mapping[str, Any] | None = None,
        done: Done | None = None,
    ) -> Response:
        """The page with its data, or with the reason why there is none."""
        page, data, cluster, role, failures = self.page, None, None, Role.READ, []
        try:
            cluster = exchange.cluster()
            ask = exchange.ask(cluster, query)
            role = self._role(ask)
            data = await page.read(ask)
            failures = cluster.failures()
        except Exception as raised:
            refused = _refused(raised)
            error, data = error or refused, refused.data
        template = f"{page.folder}/{page.template}" if data is not None else "failed.html"
        request = exchange.request
        return exchange.render(
            template,
            200 if error is None else error.status,
            data=data, cluster=cluster, section=page.section, query=query, error=error, form=form or {}, done=done,
            failures=failures, role=role, api=API + request.url.path,
            path={name: _name(text) for name, text in request.path_params.items()},
        )  # fmt: skip

    def _role(self, ask: Ask) -> Role:
        """The role that counts on this page. Raises Refused if it is too low to see it."""
        role = ask.role_for(ask.path[self.page.named] if self.page.named else None)
        if self.page.named is None and self.page.needs <= Role.READ:
            return role  # whoever sees the cluster sees its lists, with the rows that they may see
        require(role, self.page.needs, ask.user)
        return role

    async def json(self, request: Request) -> Response:
        """The page's data."""
        exchange = Exchange(self.console, request)
        try:
            ask = exchange.ask(exchange.cluster(), _query(request))
            self._role(ask)
            return _json(await self.page.read(ask))
        except Exception as raised:
            refused = _refused(raised)
            return _json(_failure(refused), refused.status)

    def submit(self, action: Action) -> Callable[[Request], Awaitable[Response]]:
        """Answers the form of a change."""

        async def answer(request: Request) -> Response:
            exchange = Exchange(self.console, request)
            fields: Mapping[str, Any] = {}
            try:
                fields = await exchange.form()
                done, cluster = await self._change(exchange, action, fields)
            except Exception as raised:
                return await self._shown(exchange, {}, error=_refused(raised), form=fields)
            if action.shows or not action.is_change:
                return await self._shown(exchange, {}, form=fields, done=done)
            home = f"/clusters/{encoded(cluster.name)}"
            response = RedirectResponse(home + done.go_to, 303, SAFE)
            note = translated(exchange.lang, done.said)
            self.console.cookie(response, NOTE, quote(note[:500]), 60)
            return response

        return answer

    def post(self, action: Action) -> Callable[[Request], Awaitable[Response]]:
        """Answers a change through the API."""

        async def answer(request: Request) -> Response:
            exchange = Exchange(self.console, request)
            try:
                done, _ = await self._change(exchange, action, await json_object(request))
            except HttpError:
                raise
            except Exception as raised:
                refused = _refused(raised)
                return _json(_failure(refused), refused.status)
            return _json({"done": str(done.said), **done.data, "commands": done.commands})

        return answer

    async def _change(
        self, exchange: Exchange, action: Action, fields: Mapping[str, Any]
    ) -> tuple[Done, Cluster]:
        cluster = exchange.cluster()
        ask = exchange.ask(cluster, fields)
        require(ask.role_for(ask.path[action.named] if action.named else None), action.needs, ask.user)
        try:
            done = await action.run(ask)
        except Exception as raised:
            if action.is_change:
                await self.console.audit.note(ask, action.path, None, str(raised))
            raise
        if action.is_change:
            cluster.changed()
            await self.console.audit.note(ask, action.path, done, None)
        return done, cluster

    def stream(self, make: Stream, *, lines: bool = False) -> Callable[[Request], Awaitable[Response]]:
        """Answers with server-sent events, or with lines of JSON."""

        async def answer(request: Request) -> Response:
            exchange = Exchange(self.console, request)
            try:
                ask = exchange.ask(exchange.cluster(), _query(request))
                self._role(ask)
            except Exception as raised:
                refused = _refused(raised)
                return _json(_failure(refused), refused.status)
            headers = {**SAFE, "cache-control": "no-store", "x-accel-buffering": "no"}
            if lines:
                return StreamingResponse(_lines(make(ask)), 200, headers, "application/x-ndjson")
            change = self._change_event(exchange, ask)
            return StreamingResponse(_events(make(ask), change), 200, headers, "text/event-stream")

        return answer

    def _change_event(self, exchange: Exchange, ask: Ask) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
        """Sentences in the reader's language; records as rows of HTML if the page's script asks for them."""
        template = None
        if self.page.rows is not None and ask.text("as") == "html":
            template = self.console.templates.get_template(self.page.rows)

        def change(value: Mapping[str, Any]) -> Mapping[str, Any]:
            fields = dict(value)
            for name, member in value.items():
                if isinstance(member, Said):
                    fields[name] = translated(exchange.lang, member)
                elif name == "notes":
                    fields[name] = [translated(exchange.lang, one) for one in member]
            if template is not None and "records" in fields:
                records = fields.pop("records")
                home = f"/clusters/{encoded(ask.cluster.name)}/topics/{encoded(ask.path.get('topic', ''))}"
                fields["html"] = template.render(
                    lang=exchange.lang, records=records, topic_home=home, query=ask.fields
                )
            return fields

        return change


async def _lines(values: AsyncIterator[Mapping[str, Any]]) -> AsyncIterator[bytes]:
    """Values as lines of JSON; a failure is the last line."""
    try:
        async for value in values:
            yield json_bytes(value) + b"\n"
    except Exception as raised:
        yield json_bytes({"error": _failure(_refused(raised))}) + b"\n"


async def _events(
    values: AsyncIterator[Mapping[str, Any]], change: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> AsyncIterator[bytes]:
    """Values as server-sent events; `event` of a value is its name. A failure is the last event."""
    try:
        async for value in values:
            yield _event(str(value.get("event", "message")), change(value))
    except Exception as raised:
        refused = _refused(raised)
        fields: dict[str, Any] = {"message": refused.reason, "again": refused.status == 503}
        if refused.advice is not None:
            fields["advice"] = refused.advice
        yield _event("failed", change(fields))


def _event(name: str, value: Mapping[str, Any]) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + json_bytes(value) + b"\n\n"


# --- what belongs to no cluster ---------------------------------------------------------------------------


def _provider_routes(console: Console) -> list[Route]:
    """The way to the identity provider, back from it, and out of it."""
    provider = console.sessions.provider
    if provider is None:
        return []

    def failed(exchange: Exchange, error: Refused) -> Response:
        return exchange.render("login.html", error.status, error=error)

    async def begin(request: Request) -> Response:
        exchange = Exchange(console, request)
        target = safe_target(_query(request).get("next", "/"))
        try:
            url, browser = await provider.begin(exchange.origin, target)
        except Refused as error:
            return failed(exchange, error)
        response = RedirectResponse(url, 303, SAFE)
        console.cookie(response, BEGUN, browser, int(PENDING_S))
        return response

    async def back(request: Request) -> Response:
        exchange = Exchange(console, request)
        try:
            person = await provider.finish(request.cookies.get(BEGUN, ""), _query(request))
        except Refused as error:
            return failed(exchange, error)
        console.roles.note_groups(person.user, person.groups)
        response = RedirectResponse(person.target, 303, SAFE)
        console.cookie(response, COOKIE, console.sessions.open(person.user), int(SESSION_S))
        response.delete_cookie(BEGUN, path="/")
        return response

    async def leave(request: Request) -> Response:
        exchange = Exchange(console, request)
        try:
            return RedirectResponse(await provider.leave(exchange.origin) or LOGIN, 303, SAFE)
        except Refused as error:
            return failed(exchange, error)

    return [
        Route(f"{LOGIN}/oidc", begin, methods=["GET"]),
        Route(BACK, back, methods=["GET"]),
        Route(f"{LOGIN}/oidc/end", leave, methods=["GET"]),
    ]


def _plain_routes(console: Console) -> list[BaseRoute]:
    async def home(request: Request) -> Response:
        exchange = Exchange(console, request)
        visible = [name for name in console.clusters if console.roles.may_see(exchange.user, name)]
        if len(visible) == 1:
            return RedirectResponse(f"/clusters/{encoded(visible[0])}", 303, SAFE)
        return exchange.render("clusters.html")

    async def show_login(request: Request) -> Response:
        return Exchange(console, request).render("login.html", query=_query(request))

    async def log_in(request: Request) -> Response:
        exchange = Exchange(console, request)
        fields = await exchange.form()
        target = safe_target(str(fields.get("next", "/")))
        if not console.sessions.are_needed:
            return RedirectResponse(target, 303, SAFE)
        try:
            token = await console.sessions.log_in(
                request.scope, str(fields.get("user", "")), str(fields.get("password", ""))
            )
        except HttpError as error:
            wrong = Refused(401, said("User or password is wrong"))
            if error.status != 401:
                wrong = Refused(
                    error.status, said("Logins cannot be checked: {reason}", reason=error.message)
                )
            return exchange.render(
                "login.html", wrong.status, error=wrong, query={"next": target}, form=fields
            )
        response = RedirectResponse(target, 303, SAFE)
        console.cookie(response, COOKIE, token, int(SESSION_S))
        return response

    async def log_out(request: Request) -> Response:
        exchange = Exchange(console, request)
        await exchange.form()
        console.sessions.log_out(request.cookies)
        response = RedirectResponse(LOGIN, 303, SAFE)
        response.delete_cookie(COOKIE, path="/")
        return response

    async def prefer(request: Request) -> Response:
        exchange = Exchange(console, request)
        fields = await exchange.form()
        response = RedirectResponse(safe_target(str(fields.get("next", "/"))), 303, SAFE)
        for name, allowed in (("lang", LANGUAGES), ("theme", THEMES)):
            if fields.get(name) in allowed:
                console.cookie(response, name, str(fields[name]), YEAR_S)
        return response

    return [
        Route("/", home),
        *_provider_routes(console),
        Route(LOGIN, show_login, methods=["GET"]),
        Route(LOGIN, _refusing(console, log_in), methods=["POST"]),
        Route("/logout", _refusing(console, log_out), methods=["POST"]),
        Route("/preferences", _refusing(console, prefer), methods=["POST"]),
        Route("/static/{path:path}", static),
    ]


def _refusing(
    console: Console, work: Callable[[Request], Awaitable[Response]]
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            return await work(request)
        except Refused as refused:
            return Exchange(console, request).render("failed.html", refused.status, error=refused)

    return answer


async def static(request: Request) -> Response:
    """A file of the console's own; its address changes with its content."""
    path = (STATIC / request.path_params["path"]).resolve()
    if STATIC not in path.parents or path.suffix not in TYPES or not path.is_file():
        raise HttpError(404, "there is no such file")
    headers = {**SAFE, "cache-control": f"public, max-age={YEAR_S}, immutable"}
    return Response(path.read_bytes(), 200, headers, TYPES[path.suffix])


def table() -> list[tuple[str, str, Callable[..., Any]]]:
    """The API: (method, path, what does it), for its description."""

    async def clusters() -> None:
        """The clusters that this console shows."""

    rows: list[tuple[str, str, Callable[..., Any]]] = [("GET", f"{API}/clusters", clusters)]
    for page in PAGES:
        base = f"{API}/clusters/{{cluster}}"
        rows.append(("GET", base + page.path, page.read))
        rows += [("POST", base + action.path, action.run) for action in page.actions]
        rows += [
            ("GET", base + path, make)
            for path, make in {**(page.streams or {}), **(page.exports or {})}.items()
        ]
    return rows


def api_routes(console: Console) -> list[BaseRoute]:
    """The API: each page's data, each change, each stream."""

    async def list_clusters(request: Request) -> Response:
        exchange = Exchange(console, request)
        visible = [c for c in console.clusters.values() if console.roles.may_see(exchange.user, c.name)]
        return _json({"clusters": [{"name": c.name, "bootstrap": c.where} for c in visible]})

    routes_found: list[BaseRoute] = [Route(f"{API}/clusters", list_clusters)]
    for page in PAGES:
        answers = PageAnswers(console, page)
        base = f"{API}/clusters/{{cluster}}"
        routes_found.append(Route(base + page.path, answers.json, methods=["GET"]))
        for action in page.actions:
            routes_found.append(Route(base + action.path, answers.post(action), methods=["POST"]))
        for path, make in (page.streams or {}).items():
            routes_found.append(Route(base + path, answers.stream(make), methods=["GET"]))
        for path, make in (page.exports or {}).items():
            routes_found.append(Route(base + path, answers.stream(make, lines=True), methods=["GET"]))
    return routes_found


def routes(console: Console, more: Sequence[BaseRoute] = ()) -> list[BaseRoute]:
    """All paths. more: of what is served beside the pages."""
    all_routes = [*_plain_routes(console), *more, *api_routes(console)]
    for page in PAGES:
        answers = PageAnswers(console, page)
        base = "/clusters/{cluster}"
        all_routes.append(Route(base + page.path, answers.html, methods=["GET"]))
        for action in page.actions:
            all_routes.append(Route(base + action.path, answers.submit(action), methods=["POST"]))
    all_routes += openapi.routes("Barnabas console", table())

    async def nothing(request: Request) -> Response:
        if request.url.path.startswith("/api/"):
            raise HttpError(404, "there is nothing here; /openapi.json lists what there is")
        missing = Refused(404, said("There is no such page"))
        return Exchange(console, request).render("failed.html", 404, error=missing)

    all_routes.append(Route("/{path:path}", nothing, methods=["GET", "POST", "PUT", "DELETE", "PATCH"]))
    return all_routes
