"""Some records of a source connector, as it would write them, for previews: nothing is written or committed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from barnabas.connect.connectors import Batch, SourceConnector, SourceContext
from barnabas.connect.errors import ConnectError, OptionError
from barnabas.connect.records import SourceRecord
from barnabas.connect.worker.converting import Converting
from barnabas.connect.worker.failing import Failing
from barnabas.connect.worker.planning import load
from barnabas.connect.worker.settings import WorkerOptions
from barnabas.pipelines.kinds.connectors import Sampled
from barnabas.pipelines.plan.errors import PipelineError

NAME: Final = "preview"
DEADLINE_S: Final = 10.0


def sample(config: Mapping[str, str], topics: Sequence[str], count: int) -> list[Sampled]:
    """See `Connectors`."""
    name = config["connector.class"]
    try:
        options = WorkerOptions.of({}, {})
        loaded = load(options, {"name": NAME, **config})
        if not cast(type[SourceConnector], loaded.kind).leaves_no_trace:
            raise PipelineError(
                f"the topic of {name} does not exist yet, and asking it would change the other side: run the pipeline, and "
                "preview shows what it has written"
            )
        stopping = threading.Event()
        converting = Converting(
            options, loaded.config, Failing(NAME, 0, loaded.config, stopping, lambda letter: None)
        )
        connector = cast(SourceConnector, loaded.kind())
        samples: list[Sampled] = []
        try:
            connector.start(loaded.config, SourceContext(NAME, 0, stopping))
            for record in _polled(connector, count):
                written = converting.write(record)
                if written is not None and (not topics or written.topic in topics):
                    at_ms = written.timestamp_ms if written.timestamp_ms >= 0 else int(time.time() * 1000)
                    row = Sampled(
                        written.topic, len(samples), written.key, written.value, written.headers, at_ms
                    )
                    samples.append(row)
                if len(samples) == count:
                    break
        finally:
            stopping.set()
            connector.stop()
    except (ConnectError, OptionError) as error:
        raise PipelineError(f"{name}: {error}") from error
    return samples


def _polled(connector: SourceConnector, count: int) -> Iterator[SourceRecord]:
    """Records of all partitions, from the beginning, until nothing comes or time is up."""
    offsets: dict[int, Any] = {}
    partitions = list(connector.partitions())
    give_up = time.monotonic() + DEADLINE_S
    while time.monotonic() < give_up:
        count_so_far = 0
        for number, partition in enumerate(partitions):
            records = connector.poll(partition, offsets.get(number))
            batch = records if isinstance(records, Batch) else Batch(list(records))
            count_so_far += len(batch.records)
            yield from batch.records
            ends = [record.source_offset for record in batch.records if record.source_offset is not None]
            offsets[number] = batch.offset or (ends[-1] if ends else offsets.get(number))
        if not count_so_far:
            return
