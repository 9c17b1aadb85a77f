"""kafka-dump-log on a partition without records, whose indexes Kafka creates at once and Barnabas with the first entry."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.kafka_tools.main import main


def dump(capsys: pytest.CaptureFixture[str], file: Path) -> tuple[int, str, str]:
    code = main(["dump-log", "--files", str(file), "--print-data-log"])
    return code, *capsys.readouterr()


def test_indexes_that_are_not_there_yet_are_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / f"{0:020}.log"
    log.touch()
    index, times = log.with_suffix(".index"), log.with_suffix(".timeindex")
    assert dump(capsys, index) == (0, f"Dumping {index}\n{index} is empty.\n", "")
    assert dump(capsys, times) == (0, f"Dumping {times}\n", "")
    assert not index.exists()


def test_an_index_that_is_lost_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / f"{0:020}.log"
    log.write_bytes(b"records")
    code, _, complaint = dump(capsys, log.with_suffix(".index"))
    assert (code, "there is no such file" in complaint) == (1, True)
    code, _, complaint = dump(capsys, tmp_path / "none" / "0.index")
    assert (code, "there is no such file" in complaint) == (1, True)
