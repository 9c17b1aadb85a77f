"""IncrementalAlterConfigs (key 44): set, delete, append to or subtract from options."""

from __future__ import annotations

from typing import Final

from barnabas.wire.schema import Request, Response, Struct, array, boolean, int8, int16, int32, string

SET: Final = 0
DELETE: Final = 1
"""Values of `config_operation`; 2 appends to a list, 3 takes from it."""


class AlterableConfig(Struct):
    name: str = string()
    config_operation: int = int8()
    value: str | None = string(null="0+")


class AlterConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class IncrementalAlterConfigsRequest(Request, key=44, versions=(0, 1), flexible=1):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string(null="0+")
    resource_type: int = int8()
    resource_name: str = string()


class IncrementalAlterConfigsResponse(Response, key=44, versions=(0, 1), flexible=1):
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
