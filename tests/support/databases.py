"""Real servers of databases and messages for tests, each over a folder of its own, killed by pid."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support.process import free_port

POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
NO_POSTGRES = "no PostgreSQL server: apt install postgresql"
MARIADB = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin")
NO_MARIADB = "no MariaDB server: apt install mariadb-server"
MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
NO_MOSQUITTO = "no MQTT broker: apt install mosquitto"


class Postgres:
    """A server over a folder of its own; it refuses to run as root, so then as nobody."""

    def __init__(self, folder: Path, *settings: str) -> None:
        """settings: like wal_level=logical."""
        self.folder, self.port, self.settings = folder, free_port(), settings
        self.user = "nobody" if os.getuid() == 0 else None
        if self.user:
            os.chown(folder, pwd.getpwnam(self.user).pw_uid, -1)
        self._run("initdb", "-D", str(folder / "data"), "-U", "me", "-A", "trust", "--no-sync")
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(POSTGRES[-1].with_name(program)), *arguments]
        done = subprocess.run(
            command, user=self.user, cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        options += "".join(f" -c {setting}" for setting in self.settings)
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-o", options, "-l", "log", "-w", "start")

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", mode, "-w", "stop")

    def query(self, sql: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """The rows of the last statement; all of them in one transaction."""
        import psycopg

        with psycopg.connect(self.dsn.replace("dbname=postgres", f"dbname={database}")) as connection:
            cursor = connection.execute(sql)
            while cursor.nextset():
                pass
            return cursor.fetchall() if cursor.description else []

    @property
    def dsn(self) -> str:
        return f"host=127.0.0.1 port={self.port} user=me dbname=postgres"


class MariaDb:
    """A server that writes a row-based binary log, with the names of columns in it."""

    def __init__(self, folder: Path, *settings: str) -> None:
        assert MARIADB is not None
        self.folder, self.port, self.settings = folder, free_port(), settings
        self.user = "root" if os.getuid() == 0 else None
        installed = subprocess.run(
            [
                "mariadb-install-db",
                "--no-defaults",
                f"--datadir={folder / 'data'}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                f"--tmpdir={folder}",
                *([f"--user={self.user}"] if self.user else []),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert installed.returncode == 0, installed.stdout + installed.stderr
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        assert MARIADB is not None
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    MARIADB,
                    "--no-defaults",
                    f"--datadir={self.folder / 'data'}",
                    f"--port={self.port}",
                    "--bind-address=127.0.0.1",
                    f"--socket={self.folder / 'socket'}",
                    f"--pid-file={self.folder / 'pid'}",
                    f"--tmpdir={self.folder}",
                    "--log-bin=mysql-bin",
                    "--binlog-format=ROW",
                    "--binlog-row-image=FULL",
                    "--binlog-row-metadata=FULL",
                    "--server-id=1",
                    "--innodb-flush-log-at-trx-commit=2",
                    "--innodb-buffer-pool-size=32M",
                    "--skip-name-resolve",
                    *([f"--user={self.user}"] if self.user else []),
                    *(f"--{setting}" for setting in self.settings),
                ],
                stdout=log,
                stderr=log,
            )
        wait_for_port(self.port, self.process)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def query(self, *statements: str) -> list[tuple[Any, ...]]:
        """The rows of the last statement; all of them in one transaction."""
        import pymysql

        connection = pymysql.connect(host="127.0.0.1", port=self.port, user="root")
        with contextlib.closing(connection), connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            connection.commit()
            return list(cursor.fetchall())


class Mosquitto:
    """An MQTT broker."""

    def __init__(self, folder: Path, *lines: str) -> None:
        """lines: of its configuration."""
        self.port, self.folder = free_port(), folder
        (folder / "mosquitto.conf").write_text(
            "\n".join(
                [f"listener {self.port} 127.0.0.1", "allow_anonymous true", "max_queued_messages 0", *lines]
            )
            + "\n"
        )
        self.start()

    def start(self) -> None:
        assert MOSQUITTO is not None
        self.process = subprocess.Popen(
            [MOSQUITTO, "-c", str(self.folder / "mosquitto.conf")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for_port(self.port, self.process)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def wait_for_port(port: int, process: subprocess.Popen[bytes], limit_s: float = 60.0) -> None:
    """Returns when the process listens there."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the server ended with {process.returncode}"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise AssertionError(f"nothing listens on port {port} after {limit_s} s")


def new_folder(prefix: str) -> Path:
    """A short path outside of pytest's folders: those are closed to the servers' users, and too long for sockets."""
    return Path(tempfile.mkdtemp(prefix=f"barnabas-{prefix}-"))
