"""The schemas of embedded formats: looked up in a registry, cached, ready to encode and decode.

The schema of an id never changes and stays cached; the newest version of a subject is looked up again after LATEST_S.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar
from urllib.parse import quote

from barnabas.client.registry import MEDIA_TYPE, TAKES_NEW_FIELDS
from barnabas.http.errors import HttpError
from barnabas.http_client import Address, ask, without_login
from barnabas.proxy.encoding import SchemaText
from barnabas.proxy.errors import INVALID_SCHEMA, KAFKA_ERROR
from barnabas.proxy.formats import AVRO, JSONSCHEMA, KINDS, PROTOBUF, Codec, make_codec
from barnabas.schemas.codecs import avro_cost, json_cost
from barnabas.schemas.codecs.schemas import RuledCodec
from barnabas.schemas.errors import InvalidSchema
from barnabas.schemas.formats.base import Dependency
from barnabas.schemas.framing import contract_of
from barnabas.schemas.model import Reference

T = TypeVar("T")

TIMEOUT_S: Final = 20.0
THREADS: Final = 8
KEPT_MAX: Final = 2_000
LATEST_S: Final = 5.0
ABSENT_S: Final = 5.0
DEPENDENCIES_MAX: Final = 1_000
HEAVY_CHARS: Final = 16 << 10
"""A schema that is longer is heavy, together with those that it refers to."""
NO_SCHEMA: Final = SchemaText("", "")
TYPES: Final = {"AVRO": AVRO, "JSON": JSONSCHEMA, "PROTOBUF": PROTOBUF}
NAMES: Final = {format: name for name, format in TYPES.items()}


@dataclass(frozen=True, slots=True)
class Known:
    """A schema of the registry. format: one of the embedded formats. version: 0 if it was looked up by id or GUID.

    source: from which a process beside this one can make the codec. is_heavy: even a small value may take long to encode.
    """

    id: int
    format: str
    codec: Codec
    subject: str = ""
    version: int = 0
    source: SchemaText = NO_SCHEMA
    is_heavy: bool = False

    @property
    def is_ruled(self) -> bool:
        """Whether it has rules, whose expressions may take a while."""
        return isinstance(self.codec, RuledCodec)


class Refused(Exception):
    """The registry refused a request."""

    def __init__(self, status: int, code: int, message: str) -> None:
        self.status, self.code, self.message = status, code, message
        super().__init__(message)


class Schemas:
    """The schemas of a registry. address: of the registry, None without one. Use it in one event loop."""

    def __init__(self, address: Address | None) -> None:
        self.url = None if address is None else address.url
        self._address = address
        self._threads = ThreadPoolExecutor(THREADS, "rest schemas")
        self._kept: OrderedDict[tuple[Any, ...], tuple[float, Known | Refused]] = OrderedDict()

    async def registered(self, subject: str, format: str, text: str) -> Known:
        """The schema under a subject, registered if it is new. Raises HttpError 42205."""
        return await self._find(
            ("text", subject, format, text), lambda: self._register(subject, format, text)
        )

    async def by_id(self, schema_id: int) -> Known:
        """The schema with an id. Raises HttpError 42205."""
        return await self._find(("id", schema_id), lambda: self._by_id(schema_id))

    async def by_guid(self, guid: str) -> Known:
        """The schema with a GUID. Raises HttpError 42205."""
        return await self._find(("guid", guid), lambda: self._by_guid(guid))

    async def by_version(self, subject: str, version: int | None) -> Known:
        """A version of a subject, the newest with None. Raises HttpError 42205."""
        return await self._find(("version", subject, version), lambda: self._by_version(subject, version))

    async def record_name(self, format: str, text: str) -> str:
        """The name of the record that a schema describes. Raises HttpError 42205."""
        try:
            codec = await asyncio.get_running_loop().run_in_executor(
                self._threads, make_codec, format, text, ()
            )
        except InvalidSchema as error:
            raise HttpError(422, error.message, INVALID_SCHEMA) from error
        if codec.name is None:
            raise HttpError(422, "the schema has no name; give its subject", INVALID_SCHEMA)
        return codec.name

    async def _find(self, key: tuple[Any, ...], ask: Callable[[], Known]) -> Known:
        if self.url is None:
            raise HttpError(
                422,
                "this format needs a schema registry; start the service with --schema-registry URL",
                INVALID_SCHEMA,
            )
        now = time.monotonic()
        kept = self._kept.get(key)
        if kept is not None and now < kept[0]:
            if isinstance(kept[1], Refused):
                raise _as_http(kept[1])
            return kept[1]
        try:
            known = await asyncio.get_running_loop().run_in_executor(self._threads, ask)
        except Refused as error:
            if error.status == 404:
                self._keep(key, now + ABSENT_S, error)
            raise _as_http(error) from error
        except InvalidSchema as error:
            raise HttpError(422, f"the schema cannot be used: {error.message}", INVALID_SCHEMA) from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = getattr(error, "strerror", None) or error or type(error).__name__
            raise HttpError(
                500, f"no schema registry answers at {without_login(self.url)}: {reason}", KAFKA_ERROR
            ) from error
        moving = key[0] == "version" and key[2] is None
        self._keep(key, now + LATEST_S if moving else float("inf"), known)
        return known

    def _keep(self, key: tuple[Any, ...], until: float, schema: Known | Refused) -> None:
        self._kept[key] = (until, schema)
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)

    def close(self) -> None:
        """Stop the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    # --- in a thread ----------------------------------------------------------------------------------

    def _register(self, subject: str, format: str, text: str) -> Known:
        body = {"schema": text, "schemaType": NAMES[format]}
        path = f"/subjects/{quote(subject, safe='')}"
        answer = self._ask("POST", f"{path}/versions", body)
        known = self._by_id(int(answer["id"]), subject)
        version = int(answer.get("version") or self._ask("POST", path, body)["version"])
        return replace(known, subject=subject, version=version)

    def _by_id(self, schema_id: int, subject: str = "") -> Known:
        query = f"?subject={quote(subject, safe='')}" if subject else ""
        answer = self._ask("GET", f"/schemas/ids/{schema_id}{query}", None)
        return self._known(schema_id, answer, "", 0)

    def _by_guid(self, guid: str) -> Known:
        return self._known(0, self._ask("GET", f"/schemas/guids/{quote(guid, safe='')}", None), "", 0)

    def _by_version(self, subject: str, version: int | None) -> Known:
        wanted = "latest" if version is None else str(version)
        answer = self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/{wanted}", None)
        return self._known(int(answer["id"]), answer, subject, int(answer["version"]))

    def _known(self, schema_id: int, answer: Any, subject: str, version: int) -> Known:
        format = TYPES.get(answer.get("schemaType") or "AVRO")
        if format is None:
            raise InvalidSchema(f"schemas of type {answer.get('schemaType')!r} are not supported")
        dependencies: dict[tuple[str, int], Dependency] = {}
        self._collect(answer.get("references") or (), dependencies)
        source = SchemaText(
            KINDS[format], str(answer["schema"]), tuple(dependencies.values()), contract_of(answer)
        )
        codec = make_codec(format, source.text, source.dependencies, source.contract)
        return Known(schema_id, format, codec, subject, version, source, _is_heavy(source))

    def _collect(self, references: Any, dependencies: dict[tuple[str, int], Dependency]) -> None:
        """Add the schemas that these refer to, innermost first. The registry refuses circular references."""
        for row in references:
            place = (str(row["subject"]), int(row["version"]))
            if place in dependencies:
                continue
            if len(dependencies) >= DEPENDENCIES_MAX:
                raise InvalidSchema(f"more than {DEPENDENCIES_MAX} references")
            answer = self._ask("GET", f"/subjects/{quote(place[0], safe='')}/versions/{place[1]}", None)
            self._collect(answer.get("references") or (), dependencies)
            name = str(row["name"])
            dependencies[place] = Dependency(name, Reference(name, *place), str(answer["schema"]))

    def _ask(self, method: str, path: str, body: Any) -> Any:
        """The parsed answer to a request. Raises Refused, NoAnswer, ValueError if it is not JSON."""
        assert self._address is not None
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": MEDIA_TYPE, TAKES_NEW_FIELDS: "true"}
        response = ask(self._address, method, path, data, headers, timeout_s=TIMEOUT_S)
        answer = json.loads(response.body or b"null")
        if response.status >= 400:
            fields = answer if isinstance(answer, dict) else {}
            code = fields.get("error_code")
            raise Refused(
                response.status,
                code if isinstance(code, int) else response.status,
                str(fields.get("message") or f"status {response.status}"),
            )
        return answer


def _is_heavy(schema: SchemaText) -> bool:
    """Whether even a small value may take long to encode."""
    if len(schema.text) + sum(len(dependency.text) for dependency in schema.dependencies) > HEAVY_CHARS:
        return True
    if schema.kind == "AVRO":
        texts = (schema.text, *(dependency.text for dependency in schema.dependencies))
        return any(avro_cost.may_take_long(json.loads(text)) for text in texts)
    if schema.kind != "JSON":
        return False
    documents = {dependency.name: json.loads(dependency.text) for dependency in schema.dependencies}
    return json_cost.may_take_long(json.loads(schema.text), documents)


def _as_http(error: Refused) -> HttpError:
    if error.status >= 500:
        return HttpError(500, f"the schema registry: {error.message}", KAFKA_ERROR)
    return HttpError(422, f"the schema registry: {error.message}", INVALID_SCHEMA)
