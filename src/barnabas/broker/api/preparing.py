"""What is done with a producer's batch before it can be appended, where that takes longer than a turn of the loop may.

For topics that demand it, the schemas of the records are checked; the batch is unpacked, looked into and packed again in a
thread. Produce requests of the same connection wait meanwhile, so that a producer's batches stay in order.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.partitions.batch_checks import checked, converted, takes_long

if TYPE_CHECKING:
    from barnabas.broker.api.services import Services
    from barnabas.broker.partitions.partition import Partition
    from barnabas.storage.config import LogConfig

UNFOLDED_BYTES: Final = 1 << 20
"""What a packed batch is taken to be worth, so that a thread unpacks it."""


class Prepared(NamedTuple):
    """A batch that can be appended. converted_for: the options for which it was made; None if that is still to be done."""

    records: memoryview
    converted_for: LogConfig | None


async def prepare(services: Services, partition: Partition, records: memoryview) -> Prepared:
    """Make a batch ready for `Partition.append`. records: must not be borrowed, and may be changed. Raises ApiError."""
    config = partition.config
    header, _ = checked(records, partition.topic, config)
    if config.checks_schemas:
        await services.schema_checks.check(partition, records)
    if not takes_long(header, config):
        return Prepared(records, None)
    now_ms = services.clock.now_ms()
    work = partial(converted, records, header, partition.topic, config, now_ms)
    return Prepared(await services.conversions.run(UNFOLDED_BYTES, work), config)
