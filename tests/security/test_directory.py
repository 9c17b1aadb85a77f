"""Users of an LDAP directory log in to the HTTP services: OpenLDAP's own server says who they are."""

from __future__ import annotations

import base64
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import requests
from barnabas.security.authority import Authority
from tests.console.conftest import STAMP, WAIT_S, ConsoleProcess, running
from tests.support.process import BrokerProcess, free_port

BASE = "dc=example,dc=com"
NAME = f"uid={{user}},ou=people,{BASE}"
ENTRIES = f"""dn: {BASE}
objectClass: dcObject
objectClass: organization
o: Example
dc: example

dn: ou=people,{BASE}
objectClass: organizationalUnit
ou: people

dn: uid=anna,ou=people,{BASE}
objectClass: inetOrgPerson
uid: anna
cn: Anna
sn: A
userPassword: s3cret:ü

dn: uid=o\\,reilly,ou=people,{BASE}
objectClass: inetOrgPerson
uid: o,reilly
cn: O
sn: O
userPassword: other
"""


class OpenLdap:
    """slapd over a folder of its own, on a port for plain LDAP and one for LDAP over TLS."""

    def __init__(self, folder: Path) -> None:
        slapd = shutil.which("slapd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
        if slapd is None:
            pytest.skip("OpenLDAP's server is not installed (Debian's package `slapd`)")
        self._slapd, self._folder = slapd, folder
        self.port, self.tls_port = free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def prepare(self, certificate: Path, key: Path) -> None:
        schemas = "\n".join(
            f"include /etc/ldap/schema/{name}.schema" for name in ("core", "cosine", "inetorgperson")
        )
        (self._folder / "data").mkdir()
        (self._folder / "slapd.conf").write_text(
            f"{schemas}\nallow bind_anon_cred\nmodulepath /usr/lib/ldap\nmoduleload back_mdb\n"
            f"TLSCertificateFile {certificate}\nTLSCertificateKeyFile {key}\n"
            f'database mdb\nsuffix "{BASE}"\nrootdn "cn=admin,{BASE}"\ndirectory {self._folder}/data\n'
        )
        (self._folder / "entries").write_text(ENTRIES)
        add = [
            self._slapd,
            "-T",
            "add",
            "-f",
            str(self._folder / "slapd.conf"),
            "-l",
            str(self._folder / "entries"),
        ]
        subprocess.run(add, check=True, capture_output=True, timeout=WAIT_S)

    def start(self) -> None:
        urls = f"ldap://127.0.0.1:{self.port} ldaps://127.0.0.1:{self.tls_port}"
        command = [self._slapd, "-d", "0", "-f", str(self._folder / "slapd.conf"), "-h", urls]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        limit_s = time.monotonic() + WAIT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.tls_port)).close()
                return
            except OSError:
                assert time.monotonic() < limit_s
                time.sleep(0.05)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(WAIT_S)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificate of the authority that has signed the directory's, beside that certificate and its key."""
    folder = tmp_path_factory.mktemp("authority")
    authority = Authority.new("directory")
    key, chain = authority.issue("directory", ["127.0.0.1"])
    for name, pem in (("ca.pem", authority.pem), ("key.pem", key), ("chain.pem", chain)):
        (folder / name).write_bytes(pem)
    return folder / "ca.pem"


@pytest.fixture
def directory(authority: Path, tmp_path: Path) -> Iterator[OpenLdap]:
    ldap = OpenLdap(tmp_path)
    ldap.prepare(authority.parent / "chain.pem", authority.parent / "key.pem")
    ldap.start()
    yield ldap
    ldap.stop()


@pytest.fixture(scope="module")
def bootstrap(broker: BrokerProcess) -> str:
    return broker.bootstrap


def status(console: ConsoleProcess, user: str, password: str) -> int:
    login = base64.b64encode(f"{user}:{password}".encode()).decode()
    answer = requests.get(console.api, headers={"Authorization": f"Basic {login}"}, timeout=WAIT_S)
    return answer.status_code


def test_users_of_a_directory_log_in_also_while_it_restarts(
    directory: OpenLdap, bootstrap: str, tmp_path: Path
) -> None:
    where = ["--ldap", f"ldap://127.0.0.1:{directory.port}", "--ldap-user", NAME]
    with running(bootstrap, tmp_path / "log", *where) as console:
        assert status(console, "anna", "s3cret:ü") == 200
        assert status(console, "o,reilly", "other") == 200
        for user, password in (
            ("anna", "wrong"), ("anna", ""), ("nobody", "x"), ("anna,ou=people", "s3cret:ü"), ("*", "s3cret:ü"),
            ("an\0na", "x"), ("anna", "\u00ad"), ("anna", "\u200b\ufeff"), ("anna", "\u0007"), ("an\u00adna", "s3cret:ü"),
        ):  # fmt: skip
            assert status(console, user, password) == 401, user
        assert requests.get(console.api, timeout=WAIT_S).status_code == 401
        directory.stop()
        assert status(console, "anna", "s3cret:ü") == 200, "a password that was right a moment ago"
        assert status(console, "anna", "another") == 503
        form = {
            "user": "anna",
            "password": "x",
            "stamp": STAMP.search(requests.get(f"{console.url}/login").text)[1],
        }
        away = requests.post(f"{console.url}/login", data=form, timeout=WAIT_S)
        assert away.status_code == 503
        assert "Logins cannot be checked: the directory of users does not answer" in away.text
        directory.start()
        assert status(console, "anna", "another") == 401
        form = {"user": "anna", "password": "s3cret:ü"}
        browser = requests.Session()
        stamp = STAMP.search(browser.get(console.home, timeout=WAIT_S).text)
        assert stamp is not None
        browser.post(f"{console.url}/login", data={**form, "stamp": stamp[1]}, timeout=WAIT_S)
        assert "anna" in browser.get(console.home, timeout=WAIT_S).text
    assert "s3cret" not in (tmp_path / "log").read_text()


def test_a_user_has_one_name_however_it_is_typed(directory: OpenLdap, bootstrap: str, tmp_path: Path) -> None:
    """Directories do not tell them apart; roles do, and nobody may leave theirs behind by typing a capital letter."""
    (tmp_path / "roles").write_text("anna read\n")
    where = ["--ldap", f"ldap://127.0.0.1:{directory.port}", "--ldap-user", NAME]
    with running(bootstrap, tmp_path / "log", *where, "--roles", str(tmp_path / "roles")) as console:
        for name in ("anna", "ANNA", " anna", "anna ", "ａｎｎａ"):
            login = base64.b64encode(f"{name}:s3cret:ü".encode()).decode()
            made = requests.post(
                f"{console.api}/topics", json={"name": "never"}, headers={"Authorization": f"Basic {login}"}, timeout=WAIT_S
            )  # fmt: skip
            assert (made.status_code, "anna may not do this" in made.text) == (403, True), name


def test_the_certificate_of_a_directory_is_checked(
    directory: OpenLdap, authority: Path, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ["--ldap", f"ldaps://127.0.0.1:{directory.tls_port}", "--ldap-user", NAME]
    with running(bootstrap, tmp_path / "distrusts", *where) as console:
        assert status(console, "anna", "s3cret:ü") == 503
    assert "CERTIFICATE_VERIFY_FAILED" in (tmp_path / "distrusts").read_text()
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    with running(bootstrap, tmp_path / "trusts", *where) as console:
        assert status(console, "anna", "s3cret:ü") == 200


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--ldap", "ldap://127.0.0.1"], "--ldap URL and --ldap-user NAME are given together"),
        (["--ldap", "http://x", "--ldap-user", NAME], "'http://x' is not an address like ldaps://"),
        (["--ldap", "ldaps://x", "--ldap-user", "uid=anna"], "has no {user} in it"),
    ],
)
def test_a_wrong_option_is_named_at_the_start(options: list[str], message: str, bootstrap: str) -> None:
    command = [
        sys.executable,
        "-m",
        "barnabas",
        "console",
        "-b",
        bootstrap,
        "--listen",
        "127.0.0.1:0",
        *options,
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
    assert ended.returncode != 0
    assert message in ended.stderr
