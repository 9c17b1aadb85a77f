"""A real Kerberos key distribution centre (MIT's) for tests: on free ports, with files of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.process import free_port

REALM = "BARNABAS.TEST"
PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local")
SYSTEM_FOLDERS = "/usr/sbin:/usr/local/sbin:/sbin"
START_S = 60


class Kdc:
    """Skips the test where Debian's krb5-kdc and krb5-admin-server, or the like of others, are not installed."""

    def __init__(self, folder: Path) -> None:
        path = f"{os.environ.get('PATH', '')}:{SYSTEM_FOLDERS}"
        paths = {name: shutil.which(name, path=path) for name in PROGRAMS}
        missing = [name for name, place in paths.items() if place is None]
        if missing:
            pytest.skip(
                f"no Kerberos server on this machine: {', '.join(missing)} (Debian: krb5-kdc krb5-admin-server)"
            )
        self._programs = {name: str(place) for name, place in paths.items()}
        self.folder = folder
        self.config = folder / "krb5.conf"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """For every program that belongs to this realm."""
        return {
            **os.environ,
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{self.folder / 'no-tickets'}",
            "KRB5RCACHENAME": f"file2:{self.folder / 'replays'}",
        }

    def start(self) -> Kdc:
        port = free_port()
        # udp_preference_limit: TCP alone, so that the port that was free for it is the one that counts.
        self.config.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n rdns = false\n"
            " dns_canonicalize_hostname = false\n udp_preference_limit = 1\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n[domain_realm]\n localhost = {REALM}\n"
        )
        (self.folder / "kdc.conf").write_text(
            f'[kdcdefaults]\n kdc_listen = ""\n kdc_tcp_listen = 127.0.0.1:{port}\n[realms]\n {REALM} = {{\n'
            f"  database_name = {self.folder}/principals\n  key_stash_file = {self.folder}/stash\n"
            "  acl_file = /dev/null\n  max_life = 1h\n }\n"
        )
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "a master password")
        command = [self._programs["krb5kdc"], "-n", "-P", str(self.folder / "pid")]
        with (self.folder / "kdc.log").open("wb") as log:
            self._process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
        deadline_s = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 5).close()
                return self
            except OSError:
                printed = (self.folder / "kdc.log").read_text()
                assert self._process.poll() is None, printed
                assert time.monotonic() < deadline_s, printed
                time.sleep(0.02)

    def keytab(self, principal: str) -> Path:
        """A new principal with a random key, and the file with its key."""
        file = self.folder / f"{principal.replace('/', '-')}.keytab"
        self._run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")
        self._run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {file} {principal}")
        return file

    def _run(self, program: str, *words: str) -> None:
        done = subprocess.run(
            [self._programs[program], *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
            self._process = None
