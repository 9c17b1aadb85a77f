"""DescribeLinks (key 30007, our own), version 0: links, and where this broker stands with the partitions that it copies."""

from __future__ import annotations

from barnabas.broker.api.context import Context
from barnabas.wire.messages.links import DescribeLinksRequest, DescribeLinksResponse


def handle(context: Context, request: DescribeLinksRequest) -> DescribeLinksResponse:
    """Unknown names are left out."""
    return DescribeLinksResponse(links=context.services.links.describe(request.names))
