"""The Java classes of this folder, in the session.

They are compiled with the compiler that Spark has for its own code, once for each version of them and of Spark, and kept as
a jar beside the class archive. Spark sends the jar to the workers of a cluster.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyspark

from barnabas.pipelines.spark.private import compile_java, java_class, java_object
from barnabas.pipelines.spark.session.class_archive import cache_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGE: Final = "barnabas.tables"


def made(spark: SparkSession, name: str, *arguments: Any) -> Any:
    """A new object of one of the classes."""
    if java_class(spark, f"{PACKAGE}.{name}") is None:
        spark.sql(f"ADD JAR '{_jar(spark)}'").collect()
    return java_object(spark, f"{PACKAGE}.{name}", *arguments)


@lru_cache(maxsize=1)
def _sources() -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(Path(__file__).parent.glob("*.java"))}


def _jar(spark: SparkSession) -> Path:
    stamp = repr((pyspark.__version__, _sources()))
    name = f"tables-{hashlib.sha256(stamp.encode()).hexdigest()[:12]}.jar"
    try:
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / name
        if not path.exists():
            _compile(spark, path)
    except OSError:
        path = Path(tempfile.mkdtemp(prefix="barnabas-")) / name
        _compile(spark, path)
    return path


def _compile(spark: SparkSession, path: Path) -> None:
    """Compiles into a file beside it, which then takes the name: several processes may do this at the same time."""
    handle, fresh = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        compile_java(spark, PACKAGE, _sources(), fresh)
        Path(fresh).replace(path)
    finally:
        Path(fresh).unlink(missing_ok=True)
