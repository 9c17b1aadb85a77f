"""DescribeCluster (key 60), versions 0 to 2: brokers and controller, for admin clients."""

from __future__ import annotations

from typing import Final

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.topics.metadata import OPERATIONS_UNKNOWN
from barnabas.cores.acl import ResourceType
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS: Final = 1


def handle(context: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """All brokers, with their addresses on the listener that the client uses; UNSUPPORTED_ENDPOINT_TYPE if it asks for
    KRaft controllers.
    """
    services = context.services
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="this cluster has brokers only; there are no separate controllers to describe",
        )
    wanted = request.include_cluster_authorized_operations
    operations = context.operations(ResourceType.CLUSTER) if wanted else OPERATIONS_UNKNOWN
    return DescribeClusterResponse(
        cluster_id=services.controller.cluster_id,
        controller_id=services.image.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in services.endpoints.all(context.connection)
        ],
        cluster_authorized_operations=operations,
    )
