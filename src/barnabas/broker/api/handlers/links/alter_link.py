"""AlterLink (key 30006, our own), version 0: create, delete, promote, pause links that mirror topics of other clusters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from barnabas.broker.api.context import Context
from barnabas.broker.links import promoting
from barnabas.client.errors import ClientError
from barnabas.client.options import ClientOptions
from barnabas.cores.links import MIRRORING, PAUSED, SOURCE, LinkSpec
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.links import AlterLinkRequest, AlterLinkResponse, LinkTail


async def handle(context: Context, request: AlterLinkRequest) -> AlterLinkResponse:
    """Only the controller answers. Everything that is written to the tree is checked before."""
    action = ACTIONS.get(request.action)
    try:
        context.services.controller.require_office()
        if action is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"there is no action {request.action} on links")
        rows = await action(context, request)
    except ApiError as error:
        return AlterLinkResponse(error_code=error.code, error_message=error.message)
    return AlterLinkResponse(partitions=rows)


async def _create(context: Context, request: AlterLinkRequest) -> list[LinkTail]:
    controller = context.services.controller
    texts = {option.name: option.value for option in request.options}
    spec = LinkSpec.of(request.name, texts)
    try:
        ClientOptions.from_kafka(spec.source)
    except ClientError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"link {spec.name}: {error}") from None
    sealed = controller.configs.sealed(spec.source)
    stored = spec.texts() | {SOURCE + name: text for name, text in sealed.items()}

    def alter(present: dict[str, str]) -> dict[str, str]:
        if present and present != stored:  # the same if only the answer of an earlier attempt was lost
            raise ApiError(ErrorCode.INVALID_REQUEST, f"there is a link {spec.name!r} already")
        return stored

    await controller.options.alter_link(spec.name, alter, validate_only=request.validate_only)
    return []


async def _delete(context: Context, request: AlterLinkRequest) -> list[LinkTail]:
    await promoting.delete(context.services.links, request.name)
    return []


async def _promote(context: Context, request: AlterLinkRequest) -> list[LinkTail]:
    return await promoting.promote(
        context.services.links,
        request.name,
        request.topics,
        without_source=request.without_source,
        validate_only=request.validate_only,
    )


async def _pause(context: Context, request: AlterLinkRequest) -> list[LinkTail]:
    await promoting.set_state(context.services.links, request.name, PAUSED)
    return []


async def _resume(context: Context, request: AlterLinkRequest) -> list[LinkTail]:
    await promoting.set_state(context.services.links, request.name, MIRRORING)
    return []


async def _mirror_again(context: Context, request: AlterLinkRequest) -> list[LinkTail]:
    await promoting.mirror_again(context.services.links, request.name)
    return []


Action = Callable[[Context, AlterLinkRequest], Awaitable[list[LinkTail]]]
ACTIONS: Final[Mapping[int, Action]] = {
    0: _create,
    1: _delete,
    2: _promote,
    3: _pause,
    4: _resume,
    5: _mirror_again,
}
