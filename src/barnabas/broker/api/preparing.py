"""What is done with a producer's batch before it can be appended, where that takes longer than a turn of the loop may.

For topics that demand it, the schemas of the records are checked; the batch is unpacked, looked into and packed again in a
thread. Produce requests of the same connection wait meanwhile, so that a producer's batches stay in order.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.partitions.batch_checks import checked, converted, must_convert
from barnabas.records.batch import CODEC_MASK

if TYPE_CHECKING:
    from barnabas.broker.api.context import Context
    from barnabas.broker.partitions.partition import Partition
    from barnabas.storage.config import LogConfig


class Prepared(NamedTuple):
    """A batch that can be appended. converted_for: the options for which it was made."""

    records: memoryview
    converted_for: LogConfig


async def prepare(context: Context, partition: Partition, records: memoryview) -> Prepared:
    """Make a batch ready for `Partition.append`. records: must not be borrowed, and may be changed. Raises ApiError."""
    services = context.services
    config = partition.config
    header, records = checked(records, partition.topic, config)
    if config.checks_schemas:
        await services.schema_checks.check(partition, records, context.connection)
    now_ms = services.clock.now_ms()
    if not must_convert(header, config, now_ms):
        return Prepared(records, config)
    packed = bool(header.attributes & CODEC_MASK)
    work = partial(converted, records, header, partition.topic, config, now_ms)
    done = await services.conversions.run(len(records), work, context.connection, packed=packed)
    return Prepared(done, config)
