"""Makes the format `barnabas` known to every Spark session whose Python has this package.

Spark imports the packages whose names begin with `pyspark_` and registers their `DefaultSource`. So a program need not
call `barnabas.pipelines.register`, and the format is found in every thread.
"""

from __future__ import annotations

try:
    from barnabas.pipelines.spark.topics.source import BarnabasSource as DefaultSource
except (
    ImportError
):  # without the extra `pipelines`: an error here would hide the data sources of other packages
    __all__ = []
else:
    __all__ = ["DefaultSource"]
