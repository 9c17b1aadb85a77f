"""Who may use the console, and for what: logins, sessions, roles; and that nothing is open on a public address."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import requests
from barnabas.console.roles import Role, Roles, RolesError, read_roles
from tests.console.conftest import STAMP, WAIT_S, ConsoleProcess, running

ROLES = """
# user role cluster name
anna admin
ben operate local mine-*
ben read local *
carl read other
"""


class Person:
    """Somebody with a browser. page: of the cluster."""

    def __init__(self, console: ConsoleProcess, user: str, password: str) -> None:
        self.console = console
        self.session = requests.Session()
        form = self.session.get(f"{console.url}/login", timeout=WAIT_S)
        stamp = STAMP.search(form.text)
        assert stamp is not None
        fields = {"stamp": stamp[1], "user": user, "password": password, "next": "/clusters/local/topics"}
        self.answer = self.session.post(
            f"{console.url}/login", data=fields, timeout=WAIT_S, allow_redirects=False
        )

    def get(self, path: str) -> requests.Response:
        return self.session.get(self.console.url + path, timeout=WAIT_S, allow_redirects=False)

    def post(self, path: str, body: dict[str, object]) -> requests.Response:
        return self.session.post(self.console.api + path, json=body, timeout=WAIT_S)


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The file of users, and their passwords."""
    folder = tmp_path_factory.mktemp("secure") / "made"
    command = [sys.executable, "-m", "barnabas", "security", "init", str(folder)]
    for user in ("anna", "ben", "carl"):
        command += ["--user", user]
    subprocess.run(command, check=True, capture_output=True, timeout=WAIT_S)
    passwords = {}
    for user in ("anna", "ben", "carl"):
        text = "".join(
            path.read_text() for path in (folder / "clients" / user).glob("*") if path.suffix != ".pem"
        )
        passwords[user] = text.split("sasl.password=", 1)[1].splitlines()[0]
    return folder / "users.properties", passwords


@pytest.fixture(scope="module")
def locked(
    bootstrap: str, users: tuple[Path, dict[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleProcess]:
    folder = tmp_path_factory.mktemp("locked")
    (folder / "roles").write_text(ROLES)
    (folder / "masks").write_text("mine-* value.secret hide admin\nmine-* headers.token hide admin\n")
    options = ["--users", str(users[0]), "--roles", str(folder / "roles"), "--masks", str(folder / "masks")]
    with running(bootstrap, folder / "log", *options) as console:
        yield console


def test_without_a_login_there_is_only_the_form(locked: ConsoleProcess) -> None:
    for path in ("/", "/clusters/local", "/docs", "/nothing"):
        answer = requests.get(locked.url + path, timeout=WAIT_S, allow_redirects=False)
        assert (answer.status_code, answer.headers["location"].split("?")[0]) == (303, "/login"), path
    answer = requests.get(f"{locked.api}/topics", timeout=WAIT_S)
    assert answer.status_code == 401
    assert "Basic" in answer.headers["www-authenticate"]
    assert requests.get(f"{locked.url}/health", timeout=WAIT_S).status_code == 200


def test_a_session_begins_with_the_password_and_ends_with_the_button(
    locked: ConsoleProcess, users: tuple[Path, dict[str, str]]
) -> None:
    wrong = Person(locked, "anna", "wrong")
    assert wrong.answer.status_code == 401
    assert "User or password is wrong" in wrong.answer.text
    anna = Person(locked, "anna", users[1]["anna"])
    assert (anna.answer.status_code, anna.answer.headers["location"]) == (303, "/clusters/local/topics")
    cookie = anna.answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=lax" in cookie.lower()
    page = anna.get("/clusters/local/topics")
    assert page.status_code == 200
    stamp = STAMP.search(page.text)
    assert stamp is not None
    kept = dict(anna.session.cookies)
    anna.session.post(f"{locked.url}/logout", data={"stamp": stamp[1]}, timeout=WAIT_S)
    late = requests.get(locked.home, cookies=kept, timeout=WAIT_S, allow_redirects=False)
    assert late.status_code == 303


def test_after_the_login_only_pages_of_the_console_follow(
    locked: ConsoleProcess, users: tuple[Path, dict[str, str]]
) -> None:
    anna = Person(locked, "anna", users[1]["anna"])
    for target in ("https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)"):
        stamp = STAMP.search(requests.get(f"{locked.url}/login", timeout=WAIT_S).text)
        assert stamp is not None
        fields = {"stamp": stamp[1], "user": "anna", "password": users[1]["anna"], "next": target}
        answer = requests.post(f"{locked.url}/login", data=fields, timeout=WAIT_S, allow_redirects=False)
        assert answer.headers["location"] == "/", target
    assert anna.get("/clusters/local").status_code == 200


def test_a_stamp_of_another_session_is_refused(
    locked: ConsoleProcess, users: tuple[Path, dict[str, str]]
) -> None:
    anna, ben = (Person(locked, user, users[1][user]) for user in ("anna", "ben"))
    stamp = STAMP.search(ben.get("/clusters/local").text)
    assert stamp is not None
    fields = {"stamp": stamp[1], "name": "forged"}
    answer = anna.session.post(f"{locked.home}/topics", data=fields, timeout=WAIT_S)
    assert answer.status_code == 403


def test_roles_decide_who_sees_and_changes_what(
    locked: ConsoleProcess, console: ConsoleProcess, users: tuple[Path, dict[str, str]]
) -> None:
    anna, ben, carl = (Person(locked, user, users[1][user]) for user in ("anna", "ben", "carl"))
    for name in ("mine-1", "yours-1"):
        assert anna.post("/topics", {"name": name, "partitions": 1}).status_code == 200
    assert ben.get("/clusters/local/topics/yours-1").status_code == 200
    assert ben.post("/topics/mine-1/produce", {"value": "x"}).status_code == 200
    refused = ben.post("/topics/yours-1/produce", {"value": "x"})
    assert (refused.status_code, refused.json()["message"]) == (
        403,
        "ben may not do this: it needs the role operate",
    )
    assert ben.post("/topics/mine-1/delete", {"confirm": "mine-1"}).status_code == 403
    assert ben.post("/topics", {"name": "mine-2"}).status_code == 403
    assert "Create a topic" not in ben.get("/clusters/local/topics").text
    assert carl.get("/clusters/local/topics").status_code == 404
    assert carl.get("/api/v1/clusters").json() == {"clusters": []}


def test_masked_fields_are_shown_and_found_by_nobody_else(
    locked: ConsoleProcess, users: tuple[Path, dict[str, str]]
) -> None:
    anna, ben = (Person(locked, user, users[1][user]) for user in ("anna", "ben"))
    assert anna.post("/topics", {"name": "mine-masked", "partitions": 1}).status_code == 200
    record = {"value": {"id": 7, "secret": "4711"}, "headers": {"token": "4712", "source": "shop"}}
    assert anna.post("/topics/mine-masked/produce", record).status_code == 200
    records = "/clusters/local/topics/mine-masked/records"
    for path in ("", "?value_as=text", "?value_as=hex", "/0/0", "/0/0?value_as=base64", "/export", "/search"):
        shown = ben.get(f"/api/v1{records}{path}")
        assert shown.status_code == 200
        assert "4711" not in shown.text, path
        assert "4712" not in shown.text, path
        assert "34 37 31 31" not in shown.text, path
    assert "4711" not in ben.get(records).text
    assert "4711" in anna.get(records).text

    def count_found(who: Person, filter_: str) -> int:
        return len(who.get(f"/api/v1{records}?filter={filter_}").json()["records"])

    for filter_ in ("secret = '4711'", "value LIKE '%254711%25'", "headers['token'] = '4712'"):
        assert (count_found(anna, filter_), count_found(ben, filter_)) == (1, 0), filter_
    assert count_found(ben, "id = 7") == 1
    again = ben.get("/clusters/local/topics/mine-masked/produce?partition=0&offset=0")
    assert again.status_code == 403
    assert "cannot be sent again" in again.text


def test_a_program_logs_in_with_each_request(
    locked: ConsoleProcess, users: tuple[Path, dict[str, str]]
) -> None:
    login = ("anna", users[1]["anna"])
    assert requests.get(f"{locked.api}/topics", auth=login, timeout=WAIT_S).status_code == 200
    assert requests.get(f"{locked.api}/topics", auth=("anna", "x"), timeout=WAIT_S).status_code == 401


def test_a_public_address_without_tls_and_login_is_refused(bootstrap: str) -> None:
    command = [sys.executable, "-m", "barnabas", "console", "-b", bootstrap, "--listen", "0.0.0.0:0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode != 0
    assert "--open" in done.stderr


def test_a_file_of_roles_is_read_and_its_mistakes_are_named(tmp_path: Path) -> None:
    file = tmp_path / "roles"
    file.write_text(ROLES)
    roles = read_roles(file, Role.READ)
    assert roles.role("ben", "local", "mine-7") == Role.OPERATE
    assert (roles.role("ben", "local", "x"), roles.role("ben", "other", "x")) == (Role.READ, Role.NONE)
    assert (roles.role("anna", "any"), roles.role("dora", "any"), Roles().role(None, "any")) == (
        Role.ADMIN, Role.READ, Role.ADMIN,
    )  # fmt: skip
    file.write_text("anna chief\n")
    with pytest.raises(RolesError, match="line 1 is not USER ROLE"):
        read_roles(file, Role.READ)
