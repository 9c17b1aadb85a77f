"""Connectors as parts of pipelines, for `barnabas.pipelines.kinds.connectors`."""

from barnabas.connect.in_pipelines.checking import check_sink, check_source, reach
from barnabas.connect.in_pipelines.feeding import feed
from barnabas.connect.in_pipelines.sampling import sample
from barnabas.connect.in_pipelines.targets import deliver

__all__ = ["check_sink", "check_source", "deliver", "feed", "reach", "sample"]
