"""What a broker says when the metadata's file cannot be used: what helps depends on why."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.cluster.trees import tree_opener
from barnabas.config.loader import load
from barnabas.coordination.tree import TreeError
from barnabas.runtime.machine import Machine


def refusal(*log_dirs: Path) -> str:
    config = load(overrides={"log.dirs": ",".join(map(str, log_dirs))})
    with pytest.raises(TreeError) as raised:
        asyncio.run(tree_opener(config, Machine())[0]())  # type: ignore[arg-type]
    return str(raised.value)


def test_the_first_log_dir_is_no_folder(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("a file")
    second.mkdir()
    reason = f"{first}: no folder that the broker may read and write; the first folder of log.dirs holds the metadata: "
    assert refusal(first, second).startswith(reason)
    assert "cannot be created; the first folder" in refusal(first / "below", second)


def test_a_file_that_may_not_be_read_needs_no_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "znodes.sqlite"
    tree.write_text("no database")
    assert re.search(r"; restore it with `barnabas recover \S+`$", refusal(tmp_path))
    real: Any = os.access  # root may read every file, so the answer for others is made here
    monkeypatch.setattr(os, "access", lambda path, mode: path != tree and real(path, mode))
    assert refusal(tmp_path).endswith("; let the broker read and write the file")
