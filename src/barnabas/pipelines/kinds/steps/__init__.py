"""The processing steps of a pipeline file, by name; each is checked on load and compiled to Spark columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.pipelines.kinds.steps.base import StepRule
from barnabas.pipelines.kinds.steps.fields import FIELD_STEPS
from barnabas.pipelines.kinds.steps.nested import NESTED_STEPS
from barnabas.pipelines.kinds.steps.parse import PARSE_STEPS
from barnabas.pipelines.kinds.steps.process import PROCESS_STEPS
from barnabas.pipelines.kinds.steps.text import TEXT_STEPS

STEPS: Final[Mapping[str, StepRule]] = {
    **PARSE_STEPS,
    **FIELD_STEPS,
    **TEXT_STEPS,
    **NESTED_STEPS,
    **PROCESS_STEPS,
}
