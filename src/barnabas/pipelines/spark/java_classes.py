"""Java classes of this package in a session, from the sources in a folder.

They are compiled with the compiler that Spark has for its own code, once for each version of them and of Spark, and kept as
a jar beside the class archive. Spark sends the jar to the workers of a cluster.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark

from barnabas.pipelines.spark.private import compile_java, java_class, java_object
from barnabas.pipelines.spark.session.class_archive import cache_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class JavaClasses:
    """package: of the classes. folder: with their sources."""

    def __init__(self, package: str, folder: Path) -> None:
        self.package = package
        self.folder = folder

    def new(self, spark: SparkSession, name: str, *arguments: Any) -> Any:
        """A new object of one of the classes."""
        if java_class(spark, f"{self.package}.{name}") is None:
            spark.sql(f"ADD JAR '{self._jar(spark)}'").collect()
        return java_object(spark, f"{self.package}.{name}", *arguments)

    @cached_property
    def _sources(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in sorted(self.folder.glob("*.java"))}

    def _jar(self, spark: SparkSession) -> Path:
        stamp = repr((pyspark.__version__, self._sources))
        name = f"{self.package.rpartition('.')[2]}-{hashlib.sha256(stamp.encode()).hexdigest()[:12]}.jar"
        try:
            folder = cache_folder()
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / name
            if not path.exists():
                self._compile(spark, path)
        except OSError:
            path = Path(tempfile.mkdtemp(prefix="barnabas-")) / name
            self._compile(spark, path)
        return path

    def _compile(self, spark: SparkSession, path: Path) -> None:
        """Compiles into a file beside it, which then takes the name: several processes may do this at the same time."""
        handle, fresh = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        try:
            compile_java(spark, self.package, self._sources, fresh)
            Path(fresh).replace(path)
        finally:
            Path(fresh).unlink(missing_ok=True)
