"""The Java classes of this folder, in the session."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from barnabas.pipelines.spark.java_classes import JavaClasses

new_object: Final = JavaClasses("barnabas.tables", Path(__file__).parent).new
