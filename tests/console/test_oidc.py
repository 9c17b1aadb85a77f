"""Logins at a real identity provider (oidc-provider of npm): roles by groups, logout, and what must be refused."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urljoin, urlsplit

import pytest

import requests
from tests.clients import foreign
from tests.console.conftest import WAIT_S, ConsoleProcess, running
from tests.console.seeing import NARROW, Seen, axe_source, chromium, need_chromium
from tests.support.process import free_port

pytestmark = pytest.mark.soak

VERSION = "8.8.1"
SECRET = "a secret/with+signs"
ROLES = "@kafka-* admin\nbert read local seen-*\n"


@pytest.fixture(scope="module")
def modules() -> Path:
    """A folder with oidc-provider."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("there is no npm")

    def install(folder: Path) -> None:
        command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", f"oidc-provider@{VERSION}"]
        foreign.fetch_or_skip(command, folder, f"npm cannot fetch oidc-provider {VERSION}")

    return foreign.made(f"oidc-provider-{VERSION}", install)


@contextmanager
def provided(modules: Path, port: int, client: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    script = Path(__file__).parent / "provider.mjs"
    command = ["node", str(script), str(port), client, *arguments]
    with subprocess.Popen(
        command, cwd=modules, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready ")
            yield process
        finally:
            process.kill()


@contextmanager
def console_with(bootstrap: str, folder: Path, issuer: str, listen: str) -> Iterator[ConsoleProcess]:
    (folder / "roles").write_text(ROLES)
    (folder / "secret").write_text(SECRET + "\n")
    (folder / "secret").chmod(0o600)
    with running(
        bootstrap, folder / "console.log", "--listen", listen, "--oidc", issuer, "--oidc-client", "console",
        "--oidc-secret", str(folder / "secret"), "--roles", str(folder / "roles"), "--role", "none",
    ) as console:  # fmt: skip
        yield console


def log_in(console: ConsoleProcess, user: str, session: requests.Session) -> requests.Response:
    """Go through the provider's forms as a browser does; the answer after the last redirect."""
    page = session.get(f"{console.url}/clusters/local", timeout=WAIT_S)
    assert "Log in at 127.0.0.1" in page.text
    link = re.search(r'href="(/login/oidc\?next=[^"]*)"', page.text)
    assert link is not None
    page = session.get(console.url + link[1].replace("&amp;", "&"), timeout=WAIT_S)
    for _ in range(4):
        if page.url.startswith(console.url):
            break
        form = re.search(r'<form[^>]*action="([^"]+)"', page.text)
        assert form is not None, page.text[:500]
        prompt = "login" if 'name="login"' in page.text else "consent"
        data = {"prompt": prompt, "login": user, "password": "any"}
        page = session.post(urljoin(page.url, form[1]), data=data, timeout=WAIT_S)
    return page


def test_a_person_logs_in_with_the_roles_of_the_groups_and_out(
    bootstrap: str, tmp_path: Path, modules: Path
) -> None:
    port, own = free_port(), free_port()
    client = f"http://127.0.0.1:{own}"
    with (
        provided(modules, port, client) as provider,
        console_with(bootstrap, tmp_path, f"http://127.0.0.1:{port}", f"127.0.0.1:{own}") as console,
    ):
        assert requests.get(f"{console.api}/topics", timeout=WAIT_S).status_code == 401
        anna, bert, carl = requests.Session(), requests.Session(), requests.Session()
        page = log_in(console, "anna", anna)
        assert (page.status_code, page.url) == (200, f"{console.url}/clusters/local")
        assert "anna" in page.text
        topic = {"name": "seen-oidc", "partitions": 1}
        assert anna.post(f"{console.api}/topics", json=topic, timeout=WAIT_S).status_code == 200

        assert log_in(console, "bert", bert).url.startswith(console.url)
        assert bert.get(f"{console.api}/topics/seen-oidc", timeout=WAIT_S).status_code == 200
        assert (
            bert.post(f"{console.api}/topics", json={**topic, "name": "seen-2"}, timeout=WAIT_S).status_code
            == 403
        )
        assert log_in(console, "carl", carl).url.startswith(console.url)
        assert carl.get(f"{console.api}/topics", timeout=WAIT_S).status_code == 404

        # Somebody else's way back, one that was gone already, and one that nobody began.
        begun = requests.Session().get(f"{console.url}/login/oidc", timeout=WAIT_S, allow_redirects=False)
        state = parse_qs(urlsplit(begun.headers["location"]).query)["state"][0]
        for query in ({"state": state, "code": "x"}, {"state": state, "code": "x"}, {"state": "no"}, {}):
            refused = anna.get(f"{console.url}/login/oidc/back", params=query, timeout=WAIT_S)
            assert refused.status_code == 400
            assert "not begun in this browser" in refused.text
        # A wrong code, and a person who says no.
        for query, words in (
            ({"code": "wrong"}, "cannot be used"),
            ({"error": "access_denied"}, "access_denied"),
        ):
            other = requests.Session()
            begun = other.get(f"{console.url}/login/oidc", timeout=WAIT_S, allow_redirects=False)
            state = parse_qs(urlsplit(begun.headers["location"]).query)["state"][0]
            refused = other.get(
                f"{console.url}/login/oidc/back", params={"state": state, **query}, timeout=WAIT_S
            )
            assert refused.status_code in (401, 502)
            assert words in refused.text
            assert "barnabas_console" not in other.cookies

        stamp = re.search(r'name="stamp" value="([0-9a-f]+)"', anna.get(console.home, timeout=WAIT_S).text)
        assert stamp is not None
        assert anna.post(f"{console.url}/logout", data={"stamp": stamp[1]}, timeout=WAIT_S).status_code == 200
        assert anna.get(f"{console.api}/topics", timeout=WAIT_S).status_code == 401
        left = anna.get(f"{console.url}/login/oidc/end", timeout=WAIT_S)
        assert left.url.startswith(f"http://127.0.0.1:{port}/session/end")

        provider.kill()
        provider.wait(WAIT_S)
        assert bert.get(f"{console.api}/topics/seen-oidc", timeout=WAIT_S).status_code == 200


def test_an_expired_token_and_a_provider_that_is_away_are_said_plainly(
    bootstrap: str, tmp_path: Path, modules: Path
) -> None:
    port, own = free_port(), free_port()
    client = f"http://127.0.0.1:{own}"
    with console_with(bootstrap, tmp_path, f"http://127.0.0.1:{port}", f"127.0.0.1:{own}") as console:
        away = requests.get(f"{console.url}/login/oidc", timeout=WAIT_S)
        assert away.status_code == 502
        assert "cannot be used" in away.text
        with provided(modules, port, client, "late"):
            page = log_in(console, "anna", requests.Session())
            assert page.status_code == 401
            assert "expired" in page.text


def test_in_a_browser_from_the_button_to_the_page_and_out(
    bootstrap: str, tmp_path: Path, modules: Path
) -> None:
    need_chromium()
    port, own = free_port(), free_port()
    with (
        provided(modules, port, f"http://127.0.0.1:{own}"),
        console_with(bootstrap, tmp_path, f"http://127.0.0.1:{port}", f"127.0.0.1:{own}") as console,
        chromium() as browser,
    ):
        seen = Seen(browser, NARROW, "dark")
        page = seen.page
        page.goto(f"{console.home}/topics?internal=1")
        seen.check_rules(axe_source())
        seen.check_keyboard()
        page.get_by_role("link", name="Log in at 127.0.0.1").click()
        page.locator("input[name=login]").fill("anna")
        page.locator("input[name=password]").fill("any")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Continue").click()
        page.wait_for_url(f"{console.home}/topics?internal=1")  # where the way began
        assert page.locator("h1").inner_text() == "Topics"
        assert page.locator(".user").inner_text() == "anna"
        seen.problems.clear()  # the provider's own form asks for fonts on the internet
        page.reload()
        seen.check()
        page.get_by_role("button", name="Log out").click()
        page.get_by_role("link", name="Log out there").click()
        page.get_by_role("button", name="Yes, sign me out").click()
        page.wait_for_url(f"{console.url}/login")
        page.goto(console.home)
        page.get_by_role("link", name="Log in at 127.0.0.1").wait_for()
        seen.close()
