"""Encodes values with schemas in a process beside the service, if that may take long.

The libraries for Avro, JSON Schema and Protobuf hold the interpreter's lock while they encode or validate a value, and some
schemas take them hours for a few bytes. The process has the limits of CPU time and memory of `registry/worker.py`.
"""

from __future__ import annotations

import asyncio
import importlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from barnabas.http.errors import HttpError
from barnabas.registry.errors import RegistryError
from barnabas.registry.tasks import TOO_LONG, Outcome
from barnabas.registry.worker import Limits, Worker, run
from barnabas.schemas.codecs import Mismatch
from barnabas.schemas.codecs.rules import RuleFailed
from barnabas.schemas.codecs.schemas import make_codec
from barnabas.schemas.errors import InvalidSchema
from barnabas.schemas.formats.base import Dependency
from barnabas.schemas.json_text import dump_json, parse_json

MODULE: Final = "barnabas.proxy.encoding"
KEPT_MAX: Final = 20
LASTS: Final = (
    "encoding the records with this schema takes more than the service allows; send fewer or smaller records in one "
    "request, or make the schema simpler"
)


class SchemaText(NamedTuple):
    """A schema from which a codec can be made, see codecs.schemas.make_codec."""

    kind: str
    text: str
    dependencies: tuple[Dependency, ...] = ()
    contract: str = ""


class Encode(NamedTuple):
    """A task. values: a JSON list, in UTF-8."""

    schema: SchemaText
    values: bytes


class Refusal(NamedTuple):
    """Why a value was not encoded. rule: the one that refuses it; empty if it does not suit the schema."""

    message: str
    rule: str = ""
    dead_letters: str | None = None

    def error(self) -> Mismatch:
        """What the codec raised."""
        if self.rule:
            return RuleFailed(self.message, self.rule, self.dead_letters)
        return Mismatch(self.message)


class Encoding:
    """The process, which is started when it is first needed. limits: for one request."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._worker = Worker(limits, MODULE)

    async def encode(self, schema: SchemaText, values: Sequence[Any]) -> list[bytes | Mismatch | None]:
        """The payload of each JSON value, or why it has none; None for null.

        Raises HttpError 422 if it takes too long, 503 if too many wait.
        """
        raw = await asyncio.to_thread(dump_json, list(values))
        try:
            report = await self._worker.carry_out(Encode(schema, raw))
        except RegistryError as error:
            raise HttpError(503, error.message, headers={"retry-after": "1"}) from error
        if report.outcome is None:
            raise AssertionError(f"the process that encodes failed: {report.bug}")
        if report.outcome == TOO_LONG:
            raise HttpError(422, LASTS)
        rows: list[Any] = report.outcome.result()
        return [row.error() if isinstance(row, Refusal) else row for row in rows]

    def close(self) -> None:
        """End the process."""
        self._worker.close()


# --- the process itself -------------------------------------------------------------------------------


class Desk:
    """Encodes, and keeps the codecs that were used last."""

    def __init__(self) -> None:
        self._codecs: OrderedDict[SchemaText, Any] = OrderedDict()

    def carry_out(self, task: Encode) -> Outcome:
        """See registry.worker.Carrier."""
        try:
            codec = self._codec(task.schema)
        except InvalidSchema as error:
            return Outcome(error.code, error.message)
        return Outcome(0, [_encoded(codec, value) for value in parse_json(task.values)])

    def _codec(self, schema: SchemaText) -> Any:
        codec = self._codecs.pop(schema, None) or make_codec(*schema)
        self._codecs[schema] = codec
        while len(self._codecs) > KEPT_MAX:
            self._codecs.popitem(last=False)
        return codec


def _encoded(codec: Any, value: Any) -> bytes | Refusal | None:
    if value is None:
        return None
    try:
        return bytes(codec.encode(value))
    except RuleFailed as error:
        return Refusal(str(error), error.rule, error.dead_letters)
    except Mismatch as error:
        return Refusal(str(error))


def main() -> None:
    """What the process runs."""
    run(Desk, _load)


def _load() -> None:
    for name in ("fastavro", "google.protobuf.json_format", "jsonschema_rs"):
        importlib.import_module(name)
