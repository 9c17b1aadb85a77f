"""The JSON Schema of pipeline files, for editors: made of the declarations that check them."""

from __future__ import annotations

from typing import Any, Final

from barnabas.pipelines.spec import PIPELINE
from barnabas.pipelines.spec_parts import STEP_LIST

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def pipeline_schema() -> dict[str, Any]:
    """The schema of a pipeline file. It finds misspelt names and values of the wrong form; expressions and names of fields
    are for `pipeline check`."""
    return {
        "$schema": DIALECT,
        "title": "Barnabas pipeline",
        **PIPELINE.schema(),
        "$defs": {STEP_LIST.name: STEP_LIST.make().schema()},
    }
