"""What Barnabas relies on in Spark beyond its documented interface: each of these fails when Spark changes it."""

from __future__ import annotations

import pyspark
import pytest
from pyspark.sql import functions as F

from barnabas.pipelines import spark_private
from barnabas.pipelines.chain import query_rows
from barnabas.pipelines.columns import BASE_COLUMNS, ddl_schema
from barnabas.pipelines.queries import BYTES_OPTION, ROWS_OPTION
from barnabas.pipelines.session import FILE_MANAGER
from barnabas.pipelines.spec import parse_spec
from barnabas.pipelines.steps.base import kept

pytestmark = pytest.mark.spark


def test_an_expression_that_raises_becomes_null(spark):
    rows = spark.createDataFrame([("1",), ("x",)], "a string")
    tried = spark_private.try_eval(F.struct(F.col("a").cast("int").alias("v")))
    assert [row[0] for row in rows.select(tried["v"]).collect()] == [1, None]


def test_the_columns_that_an_expression_names(spark):
    rows = spark.createDataFrame([], "a string, `b.c` int, d int")
    assert spark_private.referenced_columns(rows, F.expr("concat(a, `b.c`)")) == {"a", "b.c"}


def test_a_filter_stays_above_the_steps_it_asks(spark):
    """Pushed below them it would repeat their expressions: `kept` asks what Spark takes to change each time."""
    rows = spark.read.format("csv").schema("a string").load([])
    costly = rows.withColumn("b", F.regexp_replace("a", "costly", ""))
    plan = spark_private.physical_plan(kept(costly, F.col("b") == "x").where(F.col("b").isNotNull()))
    assert plan.count("costly") == 1
    pushed = spark_private.physical_plan(costly.where(F.col("b") == "x"))
    assert pushed.count("costly") > 1, "Spark pushes no such filter any more: `kept` may go"


def test_outputs_that_share_a_query_parse_a_record_once(spark):
    def plan(outputs):
        text = "pipeline: p\nsource: {topic: t}\nsteps:\n  - parse: {regex: '(?<a>x+)-(?<b>y+)'}\noutputs:\n"
        spec = parse_spec(text + "".join(f"  - {{topic: o{n}, key: a}}\n" for n in range(outputs)))
        (query,) = spec.queries()
        nothing = spark.createDataFrame([], ddl_schema((*BASE_COLUMNS, "headers")))
        return spark_private.physical_plan(query_rows(spec, query, nothing))

    one, three = plan(1), plan(3)
    times = one.count("(?<a>x+)") or one.count("x+")
    assert times
    assert (three.count("(?<a>x+)") or three.count("x+")) == times
    assert one.count("Scan") == three.count("Scan") == 1


def test_the_settings_that_bound_rows_on_their_way_to_python(spark):
    """Without its bound by bytes Spark does not ask ArrowWriter.sizeInBytes for every row, which is slow."""
    entries = getattr(spark._jvm.org.apache.spark.sql.internal, "SQLConf$")
    known = getattr(entries, "MODULE$")
    assert str(known.ARROW_EXECUTION_MAX_BYTES_PER_BATCH().key()) == BYTES_OPTION
    assert str(known.ARROW_EXECUTION_MAX_RECORDS_PER_BATCH().key()) == ROWS_OPTION
    writer = spark._jvm.java.lang.Class.forName("org.apache.spark.sql.execution.arrow.ArrowWriter")
    assert "sizeInBytes" in {str(method.getName()) for method in writer.getMethods()}


def test_no_packages_are_searched_for_data_sources(spark):
    assert spark_private.packaged_sources_declared(spark)


def test_classes_named_in_settings(spark, tmp_path):
    assert spark._jvm.java.lang.Class.forName(FILE_MANAGER) is not None
    assert str(spark_private.file_system(spark, str(tmp_path)).getScheme()) == "file"


def test_progress_since(spark, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("x\ny\n")
    rows = spark.readStream.format("text").load(str(tmp_path / "in"))
    stream = (
        rows.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert stream.awaitTermination(120)
    found = list(spark_private.progress_since(stream, ""))
    assert sum(progress["numInputRows"] for progress in found) == 2
    assert list(spark_private.progress_since(stream, found[-1]["timestamp"])) == []


def test_workers_import_spark_from_files(spark):
    """Spark puts a zip of itself in front of their path: Python would compile it anew in each process."""

    def where(_):
        import pyspark

        return pyspark.__file__

    assert spark.sparkContext.parallelize([0], 1).map(where).collect() == [pyspark.__file__]
