"""Nobody waits for Spark's class archive: it is made behind the first run, once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from barnabas.pipelines.spark.session import class_archive


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("BARNABAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(class_archive.ARCHIVE_DISABLED, raising=False)
    return tmp_path / "cache"


def test_what_is_there_is_taken(cache):
    path = class_archive.archive_path()
    path.parent.mkdir()
    path.write_bytes(b"classes")
    assert class_archive.find_archive() == path


def test_a_failure_is_noted_with_its_reason_and_not_tried_again_behind_a_run(cache, monkeypatch):
    # A Java that ends at once, found as Spark would find it, in the real process that makes the archive.
    java = cache.parent / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\nexit 3\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(java.parents[1]))
    assert class_archive.find_archive() is None
    failure = class_archive.failure_path(class_archive.archive_path())
    deadline = time.monotonic() + 120
    while not failure.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "Delete this file to try again." in failure.read_text()
    before = sorted(cache.iterdir())
    assert class_archive.find_archive() is None
    assert sorted(cache.iterdir()) == before


def test_without(cache, monkeypatch):
    monkeypatch.setenv(class_archive.ARCHIVE_DISABLED, "1")
    assert class_archive.find_archive() is None
    assert not cache.exists()


def test_a_folder_that_cannot_be_made_costs_one_warning(tmp_path):
    (tmp_path / "file").write_text("")
    environment = {**os.environ, "BARNABAS_CACHE": str(tmp_path / "file" / "cache")}
    command = [sys.executable, "-m", class_archive.MODULE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no class archive could be made" in done.stdout
    assert "Traceback" not in done.stderr
