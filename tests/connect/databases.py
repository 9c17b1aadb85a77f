"""The three kinds of databases under one face, for tests that run with each."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

import pytest


@dataclass
class Database:
    """kind: its name. query: runs statements, returns the rows of the last one. path: a table's whole name."""

    kind: str
    url: str
    query: Callable[..., list[tuple]]
    path: str


def opened(kind: str, request: pytest.FixtureRequest) -> Database:
    """An empty database."""
    if kind == "sqlite":
        file = request.getfixturevalue("tmp_path") / "sample.db"

        def query(*statements: str) -> list[tuple]:
            with contextlib.closing(sqlite3.connect(file)) as connection:
                for statement in statements:
                    rows = connection.execute(statement).fetchall()
                connection.commit()
                return rows

        return Database("sqlite", f"jdbc:sqlite:{file}", query, "{}")
    if kind == "mariadb":
        server = request.getfixturevalue("mariadb")
        server.query("DROP DATABASE IF EXISTS sample", "CREATE DATABASE sample")
        return Database(
            "mariadb",
            f"jdbc:mysql://127.0.0.1:{server.port}/sample?user=root&useSSL=false",
            lambda *statements: server.query("USE sample", *statements),
            "sample.{}",
        )
    server = request.getfixturevalue("postgres")
    server.query("DROP SCHEMA IF EXISTS jdbc CASCADE; CREATE SCHEMA jdbc")
    return Database(
        "postgresql",
        f"jdbc:postgresql://127.0.0.1:{server.port}/postgres?user=me&currentSchema=jdbc",
        lambda *statements: server.query("SET search_path = jdbc; " + "; ".join(statements)),
        "postgres.jdbc.{}",
    )
