"""User code with state: what a `process` step calls for each row, and what it keeps for each key.

    from barnabas.pipelines.processing import ListState, Processor, ValueState

    class Dangerous(Processor):
        returns = {"driver": "string", "events": "int"}
        recent = ListState("timestamp")

        def process(self, row):
            self.recent.append(row["at"])
            if len(self.recent) == 3:
                self.recent.clear()
                yield {"driver": self.key, "events": 3}

Nothing here needs Spark: `testing.ProcessorTest` runs a processor with its state in memory.
"""

from barnabas.pipelines.processing.processor import ListState, MapState, Processor, ValueState
from barnabas.pipelines.processing.windows import Aggregator

__all__ = ["Aggregator", "ListState", "MapState", "Processor", "ValueState"]
