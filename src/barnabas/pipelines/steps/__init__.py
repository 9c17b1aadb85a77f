"""The processing steps of a pipeline file, by name; each is checked on load and compiled to Spark columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.pipelines.steps.base import StepRule
from barnabas.pipelines.steps.fields import FIELD_STEPS
from barnabas.pipelines.steps.nested import NESTED_STEPS
from barnabas.pipelines.steps.parse import PARSE_STEPS
from barnabas.pipelines.steps.text import TEXT_STEPS

STEPS: Final[Mapping[str, StepRule]] = {**PARSE_STEPS, **FIELD_STEPS, **TEXT_STEPS, **NESTED_STEPS}
