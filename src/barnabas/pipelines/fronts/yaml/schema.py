"""The JSON Schema of pipeline files, for editors, made from the declarations that check the files."""

from __future__ import annotations

from typing import Any, Final

from barnabas.pipelines.fronts.parts.common import STEP_LIST
from barnabas.pipelines.fronts.yaml.spec import PIPELINE

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def pipeline_schema() -> dict[str, Any]:
    """The schema of a pipeline file. It detects misspelt names and values of the wrong form; `pipeline check` also
    checks expressions and names of fields."""
    return {
        "$schema": DIALECT,
        "title": "Barnabas pipeline",
        **PIPELINE.schema(),
        "$defs": {STEP_LIST.name: STEP_LIST.make().schema()},
    }
