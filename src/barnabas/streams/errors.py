"""What is wrong with a topology or its use."""

from __future__ import annotations

from barnabas.pipelines.plan.errors import PipelineError


class StreamsError(PipelineError):
    """A topology that cannot be, or a call that does not fit it. The message says what to do."""
