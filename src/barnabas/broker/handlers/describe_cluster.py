"""DescribeCluster (key 60), versions 0 to 2: brokers and controller, for admin clients."""

from __future__ import annotations

from typing import Final

from barnabas.broker.context import Context
from barnabas.broker.handlers.metadata import CLUSTER_OPERATIONS, OPERATIONS_UNKNOWN
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS: Final = 1


def handle(context: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    broker = context.broker
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="this cluster has brokers only; there are no separate controllers to describe",
        )
    operations = CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else OPERATIONS_UNKNOWN
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in broker.endpoints_for(context.connection)
        ],
        cluster_authorized_operations=operations,
    )
