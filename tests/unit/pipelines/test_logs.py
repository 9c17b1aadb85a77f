"""The log of one pipeline, out of the log that Spark writes for all of them and the journal of the server."""

from __future__ import annotations

import pytest

from barnabas.pipelines.serving.logs import JOURNAL_BYTES_MAX, Line, last_trouble, read_page, write_line

ID = "2ba2faee-1686-4479-ad43-6b853643555a"
ERROR = """org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown from the Python worker: \
Traceback (most recent call last):
  File "/work/steps.py", line 14, in boom
    raise ValueError("no such value 17")
ValueError: no such value 17
 SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner.x(PythonRunner.scala:1)
"""
SPARK = f"""WARNING: Using incubator modules: jdk.incubator.vector
2026-01-31T12:00:00.000Z WARN NativeCodeLoader [//] Unable to load native-hadoop library
2026-01-31T12:00:02.000Z ERROR Utils [shop/topics/] Aborting task
{ERROR}2026-01-31T12:00:02.100Z ERROR Executor [shop/topics/] Exception in task 0.0 in stage 0.0 (TID 0)
{ERROR}2026-01-31T12:00:02.200Z WARN TaskSetManager [//] [queryId = 2ba2f] [batchId = 0] Lost task 0.0 in stage 0.0: {ERROR}
Traceback (most recent call last):
BrokenPipeError: [Errno 32] Broken pipe
2026-01-31T12:00:03.000Z ERROR Executor [other/topics/] Exception in task 0.0 in stage 9.0 (TID 8)
{ERROR}2026-01-31T12:00:04.000Z ERROR MicroBatchExecution [//{ID}] Query shop.topics terminated with error
{ERROR}"""


@pytest.fixture
def files(tmp_path):
    spark, journal = tmp_path / "spark.log", tmp_path / "journal.jsonl"
    spark.write_text(SPARK)
    write_line(journal, Line("2026-01-31T12:00:01.000Z", "INFO", "", "started"))
    write_line(journal, Line("2026-01-31T12:00:05.000Z", "ERROR", "", "failed: no such value 17"))
    return journal, spark


def shown(page):
    return [f"{line.at[17:19]} {line.level} {line.query} {line.text}" for line in page.lines]


def test_the_log_of_one_pipeline_has_a_line_per_event_and_no_stacks(files):
    page = read_page(*files, "shop", [ID], 100)
    assert shown(page) == [
        "01 INFO  started",
        "02 ERROR topics Spark: Exception in task 0.0 in stage 0.0 (TID 0): ValueError: no such value 17",
        "02 WARN  Spark: Lost task 0.0 in stage 0.0: ValueError: no such value 17",
        "05 ERROR  failed: no such value 17",
    ]
    assert shown(read_page(*files, "shop", [ID], 1)) == ["05 ERROR  failed: no such value 17"]


def test_entries_of_other_pipelines_are_not_shown(files):
    assert [line[:8] for line in shown(read_page(*files, "other", [], 100))] == [
        "01 INFO ",
        "03 ERROR",
        "05 ERROR",
    ]


def test_following_shows_what_is_new_and_nothing_twice(files):
    journal, spark = files
    page = read_page(journal, spark, "shop", [ID], 100)
    assert read_page(journal, spark, "shop", [ID], 100, page.next) == type(page)([], page.next)
    with spark.open("a") as file:
        file.write(
            "2026-01-31T12:00:06.000Z WARN Executor [shop/topics/] one\n2026-01-31T12:00:07.000Z WARN Exec"
        )
    write_line(journal, Line("2026-01-31T12:00:06.500Z", "INFO", "", "started"))
    again = read_page(journal, spark, "shop", [ID], 100, page.next)
    assert shown(again) == ["06 WARN topics Spark: one", "06 INFO  started"]
    with spark.open("a") as file:
        file.write("utor [shop/topics/] two\n")
    assert shown(read_page(journal, spark, "shop", [ID], 100, again.next)) == ["07 WARN topics Spark: two"]


def test_a_journal_is_bounded_and_goes_on_in_a_new_file(tmp_path):
    journal = tmp_path / "journal.jsonl"
    write_line(journal, Line("2026-01-31T12:00:00.000Z", "INFO", "", "x" * JOURNAL_BYTES_MAX))
    place = read_page(journal, None, "shop", [], 10).next
    write_line(journal, Line("2026-01-31T12:00:01.000Z", "INFO", "", "after"))
    assert journal.stat().st_size < 1000
    assert shown(read_page(journal, None, "shop", [], 10, place)) == ["01 INFO  after"]
    assert [line.text[:5] for line in read_page(journal, None, "shop", [], 10).lines] == ["xxxxx", "after"]
    write_line(journal, Line("2026-01-31T12:00:02.000Z", "INFO", "", "y" * JOURNAL_BYTES_MAX))
    write_line(journal, Line("2026-01-31T12:00:03.000Z", "INFO", "", "last"))
    assert [line.text[:5] for line in read_page(journal, None, "shop", [], 10).lines] == [
        "after",
        "yyyyy",
        "last",
    ]


@pytest.mark.parametrize("after", ["x", "1", "1-2-3", "a-b"])
def test_a_place_that_is_none_is_refused(files, after):
    with pytest.raises(ValueError, match=rf"\b{after}\b|invalid literal"):
        read_page(*files, "shop", [], 10, after)


def test_there_may_be_no_files_yet(tmp_path):
    assert read_page(tmp_path / "none", tmp_path / "nothing", "shop", [], 10).lines == []


def test_the_reason_of_a_standstill_is_what_spark_logged_last(files):
    _, spark = files
    want = "Lost task 0.0 in stage 0.0: ValueError: no such value 17"
    assert last_trouble(spark, "shop", [ID], "2026-01-31T12:00:01") == want
    assert last_trouble(spark, "shop", [ID], "2026-01-31T12:00:05") is None
    assert last_trouble(spark, "nobody", [], "2026-01-31T12:00:01") is None
    assert last_trouble(None, "shop", [ID], "") is None
