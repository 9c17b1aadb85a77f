"""`barnabas sql migrate`: files of statements that are applied once, in order, as ksql-migrations does.

    barnabas sql migrate new-project migrations http://localhost:8088
    barnabas sql migrate create "add clicks"                 migrations/V000001__add_clicks.sql
    barnabas sql migrate apply --all
    barnabas sql migrate info

What has been applied is noted on the server, in the stream MIGRATION_EVENTS and the table MIGRATION_SCHEMA_VERSIONS.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from barnabas.sql import Connection, Error, connect
from barnabas.terminal.errors import CliError
from barnabas.terminal.files import read_text

SETTINGS: Final = "ksql-migrations.properties"
URL: Final = "ksql.server.url"
FOLDER: Final = "migrations"
FILE: Final = re.compile(r"V(\d{6})__(.+)\.sql")
CURRENT: Final = "CURRENT"
NONE: Final = "<none>"
EVENTS: Final = "MIGRATION_EVENTS"
VERSIONS: Final = "MIGRATION_SCHEMA_VERSIONS"
WAIT_S: Final = 180.0
COLUMNS: Final = (
    "version_key", "version", "name", "state", "checksum", "started_on", "completed_on", "previous", "error_reason",
)  # fmt: skip
METADATA: Final = (
    f"CREATE STREAM IF NOT EXISTS {EVENTS} (version_key STRING KEY, "
    + ", ".join(f"{name} STRING" for name in COLUMNS[1:])
    + f") WITH (kafka_topic='default_ksql_{EVENTS}', value_format='JSON', partitions=1);",
    f"CREATE TABLE IF NOT EXISTS {VERSIONS} WITH (kafka_topic='default_ksql_{VERSIONS}') AS SELECT version_key, "
    + ", ".join(f"LATEST_BY_OFFSET({name}) AS {name}" for name in COLUMNS[1:])
    + f" FROM {EVENTS} GROUP BY version_key EMIT CHANGES;",
)


@dataclass(frozen=True, slots=True)
class Migration:
    """A file of statements. name: what its file's name says, with blanks."""

    version: int
    name: str
    path: Path

    @property
    def text(self) -> str:
        """Its statements. Raises CliError."""
        return read_text(self.path)

    @property
    def checksum(self) -> str:
        """Of its text."""
        return hashlib.md5(self.text.encode(), usedforsecurity=False).hexdigest()


@dataclass(frozen=True, slots=True)
class Project:
    """A folder of migrations, and the server to which they are applied."""

    folder: Path
    url: str

    @classmethod
    def at(cls, settings: Path) -> Project:
        """The project of a file of settings. Raises CliError."""
        lines = read_text(settings, "`barnabas sql migrate new-project DIR URL` makes one").splitlines()
        pairs = [line.partition("=") for line in lines if line.strip() and line.strip()[0] not in "#!"]
        settings_by_name = {name.strip(): value.strip() for name, _, value in pairs}
        if not settings_by_name.get(URL):
            raise CliError(f"{settings} does not name the server: {URL}=http://localhost:8088")
        folder = settings_by_name.get("ksql.migrations.dir.override") or str(settings.parent / FOLDER)
        return cls(Path(folder), settings_by_name[URL])

    def migrations(self) -> list[Migration]:
        """All files, in order. Raises CliError."""
        by_version: dict[int, Migration] = {}
        for path in sorted(self.folder.glob("*.sql")):
            match = FILE.fullmatch(path.name)
            if match is None:
                raise CliError(f"{path}: a migration is called like V000001__add_clicks.sql")
            version = int(match[1])
            if version in by_version:
                raise CliError(
                    f"{by_version[version].path} and {path} have the same version: rename one of them"
                )
            by_version[version] = Migration(version, match[2].replace("_", " "), path)
        return list(by_version.values())

    def create(self, name: str, version: int | None) -> Path:
        """A new, empty migration. Raises CliError."""
        there = [migration.version for migration in self.migrations()]
        number = version if version is not None else max(there, default=0) + 1
        if number in there:
            raise CliError(f"there is a migration with version {number} already")
        words = re.sub(r"[^A-Za-z0-9]+", "_", name.strip()).strip("_")
        if not words:
            raise CliError("the description of a migration has letters or digits")
        path = self.folder / f"V{number:06}__{words}.sql"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            path.write_text("")
        except OSError as error:
            raise CliError(f"{path} cannot be written: {error.strerror}") from None
        return path


def new_project(folder: Path, url: str) -> None:
    """Makes the folder and its settings. Raises CliError."""
    settings = folder / SETTINGS
    if settings.exists():
        raise CliError(f"{settings} is there already")
    try:
        (folder / FOLDER).mkdir(parents=True, exist_ok=True)
        settings.write_text(f"{URL}={url}\n")
    except OSError as error:
        raise CliError(f"{folder} cannot be made: {error.strerror}") from None


class Server:
    """What a server says about migrations, and the changes to it."""

    def __init__(self, url: str) -> None:
        self.connection: Connection = connect(url, start="earliest", timeout_s=WAIT_S)

    def initialise(self) -> None:
        """Makes the stream and the table with what has been applied. Raises CliError."""
        for statement in METADATA:
            self.run(statement)

    def run(self, statement: str) -> list[dict[str, Any]]:
        """The rows of a statement. Raises CliError."""
        try:
            cursor = self.connection.cursor().execute(statement)
            if cursor.description is None:
                return []
            names = [column[0].lower() for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        except Error as error:
            raise CliError(str(error)) from None

    def is_ready(self) -> bool:
        """Whether the metadata are there. Raises CliError."""
        names = {row["name"] for row in self.run("SHOW TABLES;")}
        return VERSIONS in names

    def require(self) -> None:
        """Raises CliError if the metadata are not there."""
        if not self.is_ready():
            raise CliError(
                "migrations are not set up on the server: run `barnabas sql migrate initialize-metadata`"
            )

    def noted(self, key: str) -> Mapping[str, Any] | None:
        """What is noted about a version, or about CURRENT. Raises CliError."""
        give_up = time.monotonic() + WAIT_S
        while True:
            try:
                rows = self.run(f"SELECT * FROM {VERSIONS} WHERE version_key = '{key}';")
                return rows[0] if rows else None
            except CliError as error:
                if time.monotonic() > give_up or "yet" not in str(error):
                    raise
                time.sleep(0.5)  # the table has only just been made

    def note(self, key: str, row: Mapping[str, str]) -> None:
        """Notes it, and waits until the table has it. Raises CliError."""
        values = {"version_key": key, **row}
        shown = ", ".join("'" + str(values.get(name, "")).replace("'", "''") + "'" for name in COLUMNS)
        self.run(f"INSERT INTO {EVENTS} ({', '.join(COLUMNS)}) VALUES ({shown});")
        give_up = time.monotonic() + WAIT_S
        while time.monotonic() < give_up:
            noted_row = self.noted(key)
            if (
                noted_row is not None
                and noted_row["state"] == row["state"]
                and noted_row["version"] == row["version"]
            ):
                return
            time.sleep(0.2)
        raise CliError(
            f"the server has not noted version {key} within {WAIT_S:g} s: is the query of {VERSIONS} running?"
        )

    def current(self) -> int:
        """The newest version that has been applied; 0 for none. Raises CliError."""
        noted = self.noted(CURRENT)
        return 0 if noted is None or noted["version"] == NONE else int(noted["version"])


def apply(project: Project, server: Server, upto: int | None, dry: bool) -> list[Migration]:
    """Applies the migrations after the newest one that has been applied, up to a version; those that were applied. dry: none
    of them really. Raises CliError at the first one that fails."""
    server.require()
    current = server.current()
    chosen = [m for m in project.migrations() if m.version > current and (upto is None or m.version <= upto)]
    for migration in chosen:
        if dry:
            continue
        _apply_one(server, migration, current)
        current = migration.version
    return chosen


def _apply_one(server: Server, migration: Migration, previous: int) -> None:
    began = str(int(time.time() * 1000))
    row = {
        "version": str(migration.version), "name": migration.name, "state": "RUNNING", "checksum": migration.checksum,
        "started_on": began, "previous": str(previous) if previous else NONE,
    }  # fmt: skip
    server.note(str(migration.version), row)
    done = {**row, "state": "MIGRATED"}
    try:
        _carry_out(server, migration.text)
    except CliError as error:
        done |= {"state": "ERROR", "error_reason": str(error).splitlines()[0]}
        done["completed_on"] = str(int(time.time() * 1000))
        server.note(str(migration.version), done)
        raise CliError(f"{migration.path}: {error}") from None
    done["completed_on"] = str(int(time.time() * 1000))
    server.note(str(migration.version), done)
    server.note(CURRENT, done)


def _carry_out(server: Server, text: str) -> None:
    from barnabas.pipelines.fronts.sql import statements as s
    from barnabas.pipelines.fronts.sql.errors import SqlError
    from barnabas.pipelines.fronts.sql.grammar import read_statements

    variables: dict[str, str] = {}
    try:
        for statement in read_statements(text, variables):
            if isinstance(statement, s.Define):
                if statement.value is not None:
                    variables[statement.name] = statement.value
            else:
                server.run(statement.text + ";")
    except SqlError as error:
        raise CliError(error.shown(text)) from None


def differences(project: Project, server: Server) -> list[str]:
    """The migrations that have been applied and whose files have changed, or are gone. Raises CliError."""
    server.require()
    there = {migration.version: migration for migration in project.migrations()}
    problems, version = [], server.current()
    while version:
        noted = server.noted(str(version))
        if noted is None:
            break
        if version not in there:
            problems.append(f"version {version} ({noted['name']}) has been applied, and its file is gone")
        elif there[version].checksum != noted["checksum"]:
            problems.append(f"{there[version].path} has changed since it was applied")
        version = int(noted["previous"]) if str(noted["previous"]).isdecimal() else 0
    return problems
