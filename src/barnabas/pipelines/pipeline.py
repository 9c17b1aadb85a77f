"""`Pipeline`: a pipeline written in Python (see fronts/python.py) that can also be run."""

from __future__ import annotations

from typing import Any

from barnabas.pipelines.fronts.python import Builder
from barnabas.pipelines.serving.run import RunReport, run_pipeline


class Pipeline(Builder):
    """A pipeline under construction. It is immutable: each method returns a changed copy."""

    def run(self, **settings: Any) -> RunReport:
        """Runs the pipeline. settings: see `run_pipeline`: once, bootstrap, checkpoint_dir, master, progress, ..."""
        return run_pipeline(self.spec(), **settings)
