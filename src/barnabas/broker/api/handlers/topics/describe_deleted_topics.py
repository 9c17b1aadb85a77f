"""DescribeDeletedTopics (key 30003, our own), version 0: the deleted topics that can be restored."""

from __future__ import annotations

from barnabas.broker.api.context import Context
from barnabas.cores.acl import Operation, ResourceType
from barnabas.wire.messages.topic_bin import (
    DeletedTopic,
    DescribeDeletedTopicsRequest,
    DescribeDeletedTopicsResponse,
)


async def handle(context: Context, request: DescribeDeletedTopicsRequest) -> DescribeDeletedTopicsResponse:
    """Those that the client may describe, with the bytes that they take on this broker."""
    services = context.services
    sizes = await services.loop.run_in_executor(None, services.partitions.logs.bin.sizes)
    return DescribeDeletedTopicsResponse(
        topics=[
            DeletedTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                deleted_ms=topic.deleted_ms,
                until_ms=topic.until_ms,
                partitions=len(topic.replicas),
                size_bytes=sizes.get(topic.topic_id, 0),
            )
            for topic in sorted(services.controller.image.bin.values(), key=lambda topic: topic.deleted_ms)
            if context.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name, quietly=True)
        ]
    )
