"""ApiVersions (key 18), versions 0 to 4: what this broker serves.

A request in a version that is not supported is answered in version 0 with UNSUPPORTED_VERSION (dispatch.py): clients probe
with their newest version. Since version 3 the client names its software, which `barnabas clients` shows.
"""

from __future__ import annotations

import re

from barnabas.broker.api.context import Context
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
SOFTWARE_CHARS_MAX = 512
SOFTWARE_SENT_FROM = 3
OWN_SOFTWARE = "barnabas"


def handle(context: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """The APIs that are announced to this client's software, and the features; INVALID_REQUEST for a software name or
    version with characters that Kafka does not allow.
    """
    if context.version >= SOFTWARE_SENT_FROM:
        name, version = request.client_software_name, request.client_software_version
        if not all(
            len(text) <= SOFTWARE_CHARS_MAX and SOFTWARE_NAME.fullmatch(text) for text in (name, version)
        ):
            return ApiVersionsResponse(
                error_code=ErrorCode.INVALID_REQUEST, api_keys=context.services.apis.to()
            )
        context.connection.client_software = (name, version)
    # Our own APIs are announced to our own client only: unknown entries could confuse others.
    own = context.connection.client_software[0] == OWN_SOFTWARE
    features = context.services.features
    return ApiVersionsResponse(
        api_keys=context.services.apis.to(context.connection.client_software, own=own),
        supported_features=features.supported(context.version),
        finalized_features_epoch=0,
        finalized_features=features.finalized(),
    )
