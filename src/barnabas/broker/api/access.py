"""Authorization before a handler runs: the rights that each API needs (table.py) are checked with the authorizer.

Refused rows are removed from the request, the handler serves the rest, and the refused rows are added to its answer with
their error. A request that is refused as a whole never reaches its handler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

from barnabas.broker.api.rights import Each, Whole
from barnabas.cores.acl import CLUSTER_NAME, Operation, ResourceType
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.primitives import ZERO_UUID
from barnabas.wire.schema import Struct

if TYPE_CHECKING:
    from barnabas.broker.api.context import Context
    from barnabas.broker.api.table import Api
    from barnabas.wire.schema import Message

CODES: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
CONFIG_TYPES: Final = {2: ResourceType.TOPIC, 32: ResourceType.GROUP}
"""Config resource types that are authorized as a resource of their own; all others belong to the cluster."""
NAME_FIELDS: Final = ("name", "topic", "topic_name", "group_id", "transactional_id", "resource_name")
NOTHING: Final = object()


class Refused:
    """The refused rows of one request."""

    def __init__(self, api: Api, version: int, need: Each) -> None:
        self._api, self._version, self._need = api, version, need
        self._rows: list[tuple[object, ErrorCode]] = []

    def add(self, row: object, code: ErrorCode) -> None:
        """Note a refused row, with the error that its answer gets."""
        self._rows.append((row, code))

    def __len__(self) -> int:
        return len(self._rows)

    def join(self, answer: Message) -> Message:
        """`answer` with the refused rows added at the end."""
        field = self._api.response.FIELDS[self._need.answers]
        rows = getattr(answer, self._need.answers)
        refused = [self._answer(field.element, row, code) for row, code in self._rows]
        setattr(answer, self._need.answers, [*(rows or ()), *refused])
        return answer

    def _answer(self, kind: type[Struct], row: object, code: ErrorCode) -> Struct:
        answer = kind()
        if isinstance(row, str):
            setattr(answer, next(name for name in NAME_FIELDS if name in kind.FIELDS), row)
        else:
            assert isinstance(row, Struct)
            for name in kind.FIELDS:
                if name in row.FIELDS and kind.FIELDS[name].kind not in ("array", "struct"):
                    setattr(answer, name, getattr(row, name))
        if self._need.parts is None:
            _set_error(answer, code, self._version)
            return answer
        asked, answered = self._need.parts
        part_kind = kind.FIELDS[answered].element
        setattr(
            answer, answered, [_part(part_kind, part, code, self._version) for part in getattr(row, asked)]
        )
        return answer


def _part(kind: type[Struct], part: object, code: ErrorCode, version: int) -> Struct:
    answer = kind()
    for name, field in kind.FIELDS.items():
        if field.kind == "records" and not field.nullable_in(version):
            setattr(answer, name, b"")
    index = next(name for name in ("partition_index", "index", "partition") if name in kind.FIELDS)
    if isinstance(part, Struct):
        setattr(
            answer,
            index,
            getattr(part, next(name for name in (index, "partition_index") if name in part.FIELDS)),
        )
    else:
        setattr(answer, index, part)
    for name in ("base_offset", "offset", "end_offset", "committed_offset", "low_watermark", "timestamp"):
        if name in kind.FIELDS:
            setattr(answer, name, -1)
    _set_error(answer, code, version)
    return answer


def _set_error(answer: Struct, code: ErrorCode, version: int) -> None:
    for name in ("error_code", "partition_error_code"):
        if name in answer.FIELDS:
            setattr(answer, name, code)
    if _exists(type(answer), "error_message", version):
        setattr(answer, "error_message", _text(code))  # noqa: B010 - the field is not known to the type


def _text(code: ErrorCode) -> str:
    what = code.name.removesuffix("_AUTHORIZATION_FAILED").replace("_", " ").lower()
    return f"Not authorized to access this {what}" if what != "cluster" else "Cluster authorization failed."


def refuse(code: ErrorCode) -> ApiError:
    """The error for a request that is refused as a whole."""
    return ApiError(code, _text(code))


def check(api: Api, context: Context, request: Message) -> Refused | None:
    """Remove the refused rows from `request`; None when nothing is refused.

    Raises ApiError when the request is refused as a whole and its answer has an error code for that.
    """
    code = _whole(api, context, request)
    if code is not None and _exists(api.response, "error_code", context.version):
        raise refuse(code)
    refused: Refused | None = None
    for need in api.rights:
        if not isinstance(need, Each) or not _exists(api.request, need.rows, context.version):
            continue
        rows = getattr(request, need.rows)
        if not rows:
            continue
        refused = refused or Refused(api, context.version, need)
        kept = []
        for row in rows:
            error = code or _row_error(context, need, row)
            if error is None:
                kept.append(row)
            else:
                refused.add(row, error)
        if refused and need.together:
            for row in kept:
                refused.add(row, ErrorCode.OPERATION_NOT_ATTEMPTED)
            kept = []
        setattr(request, need.rows, kept)
    if code is not None and refused is None:
        raise refuse(code)
    return refused or None


def nothing_left(api: Api, request: Message, version: int) -> bool:
    """Whether no row of the request is left. Handlers must not see such a request: an empty list often means "all"."""
    return not any(
        getattr(request, need.rows)
        for need in api.rights
        if isinstance(need, Each) and _exists(api.request, need.rows, version)
    )


def _whole(api: Api, context: Context, request: Message) -> ErrorCode | None:
    for need in api.rights:
        if not isinstance(need, Whole):
            continue
        name: str | None = CLUSTER_NAME
        if need.of:
            if not _exists(api.request, need.of, context.version):
                continue
            name = getattr(request, need.of)
        kind = ResourceType[need.resource]
        if name is not None and not context.allows(Operation[need.operation], kind, name):
            return CODES[kind]
    return None


def _row_error(context: Context, need: Each, row: object) -> ErrorCode | None:
    operation = Operation[need.operation]
    if need.resource == "CONFIG":
        kind = CONFIG_TYPES.get(getattr(row, "resource_type"), ResourceType.CLUSTER)  # noqa: B009
        name: str | None = CLUSTER_NAME if kind is ResourceType.CLUSTER else getattr(row, "resource_name")  # noqa: B009
    else:
        kind = ResourceType[need.resource]
        name = row if isinstance(row, str) else name_of(context, row)
    if name is None:
        return None  # no topic has this id: the handler answers that
    if need.or_cluster and context.allows(
        Operation[need.or_cluster], ResourceType.CLUSTER, CLUSTER_NAME, quietly=True
    ):
        return None
    return None if context.allows(operation, kind, name) else CODES[kind]


def name_of(context: Context, row: object) -> str | None:
    """The name of the resource that a row is about; None when it gives a topic id that no topic has."""
    topic_id = getattr(row, "topic_id", ZERO_UUID)
    if isinstance(topic_id, UUID) and topic_id != ZERO_UUID:
        return context.services.partitions.name_of(topic_id)
    for field in NAME_FIELDS:
        name = getattr(row, field, NOTHING)
        if name is not NOTHING:
            assert name is None or isinstance(name, str)
            return name
    return None


def _exists(message: type[Struct], field: str, version: int) -> bool:
    return field in message.FIELDS and message.FIELDS[field].exists_in(version)
