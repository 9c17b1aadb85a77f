"""A client of a schema registry, and the bytes by which records name their schemas.

    registry = Registry("http://localhost:8081")
    schema = registry.newest("orders-value")
    record = frame(schema.id, payload)
    schema_id, payload = unframe(record)

The meaning of an id never changes, so results by id are cached. Blocking; threads may share one object.
"""

from __future__ import annotations

import http.client
import json
import struct
import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

from barnabas.client.urls import Address, connect, login_of, without_login

if TYPE_CHECKING:
    import ssl

MAGIC: Final = 0
HEAD: Final = struct.Struct(">bI")
GUID_MAGIC: Final = b"\x01"
GUID_BYTES: Final = 17
MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
TAKES_NEW_FIELDS: Final = "Confluent-Accept-Unknown-Properties"
"""The header with which clients get the fields that are new in Confluent's registry of version 8.0."""
TIMEOUT_S: Final = 30.0
TRIES: Final = 3
PAUSE_S: Final = 0.5
INDEXES_MAX: Final = 100
DEPENDENCIES_MAX: Final = 1_000
BUSY: Final = frozenset({408, 429, 500, 502, 503, 504})


class RegistryError(Exception):
    """A registry refused a request or did not answer; one sentence. code: its error code, 0 if there is none."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class NoRegistry(RegistryError):
    """Nothing at the address answers like a registry."""


class BadAddress(RegistryError):
    """The given address is not a valid address of a registry."""


class NotFramed(ValueError):
    """A record does not begin like one with a schema id."""


class Schema(NamedTuple):
    """A schema. kind: AVRO, JSON or PROTOBUF. dependencies: names and texts of the schemas it refers to, innermost first.

    contract: its rules with its metadata, as JSON text; empty without rules. guid: set if it was looked up by GUID; id is 0
    then.
    """

    id: int
    kind: str
    text: str
    dependencies: tuple[tuple[str, str], ...] = ()
    version: int = 0
    contract: str = ""
    guid: str = ""

    @property
    def called(self) -> str:
        """The id or GUID, for messages."""
        return self.guid or str(self.id)

    def same_content(self, other: Schema) -> bool:
        """Whether both have the same contents, whatever their ids."""
        ours = (self.kind, self.text, self.dependencies, self.contract)
        return ours == (other.kind, other.text, other.dependencies, other.contract)


def contract_of(answer: Mapping[str, Any]) -> str:
    """The rules, with the metadata that they use, from a registry's answer, as JSON text; empty without rules."""
    if not answer.get("ruleSet"):
        return ""
    held = {name: answer[name] for name in ("ruleSet", "metadata") if answer.get(name)}
    return json.dumps(held, sort_keys=True, separators=(",", ":"))


def frame(schema_id: int, payload: bytes) -> bytes:
    """A record's bytes: zero, the schema's id in 4 bytes, the payload. Source: Confluent's wire format."""
    return HEAD.pack(MAGIC, schema_id) + payload


def unframe(data: bytes) -> tuple[int, bytes]:
    """(id, payload). Raises NotFramed."""
    if len(data) < HEAD.size or data[0] != MAGIC:
        raise NotFramed(f"the bytes do not begin with the id of a schema: 0x{data[:5].hex()}")
    return HEAD.unpack_from(data)[1], data[HEAD.size :]


def named_schema(
    data: bytes, headers: Iterable[tuple[str, bytes | None]], part: str
) -> tuple[int | str, bytes]:
    """Id or GUID of a record's key or value, in a header or before its bytes, and the payload. Raises NotFramed.

    part: "key" or "value". Source: Confluent's serializers, which put a Protobuf message's path behind id or GUID.
    """
    carried = next((held for name, held in headers if name == schema_header(part) and held), b"")
    if carried[:1] == GUID_MAGIC and len(carried) < GUID_BYTES:
        return unframe(bytes(carried))
    return unframe_any(bytes(carried) + data)


def schema_header(part: str) -> str:
    """The header that may name the schema of a record's key or value. part: "key" or "value"."""
    return f"__{part}_schema_id"


def unframe_any(data: bytes) -> tuple[int | str, bytes]:
    """(id or GUID, payload). Raises NotFramed."""
    if data[:1] == GUID_MAGIC and len(data) >= GUID_BYTES:
        return str(uuid.UUID(bytes=data[1:GUID_BYTES])), data[GUID_BYTES:]
    return unframe(data)


def message_path(payload: bytes) -> tuple[list[int], bytes]:
    """(path, bytes) of a Protobuf payload; the path names the message in its file by indexes, outermost first.

    Raises NotFramed.
    """
    count, position = _varint(payload, 0)
    if count == 0:
        return [0], payload[position:]
    if not 0 < count <= INDEXES_MAX:
        raise NotFramed("the bytes do not name their message")
    path = []
    for _ in range(count):
        index, position = _varint(payload, position)
        if index < 0:
            raise NotFramed("the bytes do not name their message")
        path.append(index)
    return path, payload[position:]


def _varint(data: bytes, position: int) -> tuple[int, int]:
    found = shift = 0
    while position < len(data) and shift <= 35:
        byte = data[position]
        position += 1
        found |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return (found >> 1) ^ -(found & 1), position
    raise NotFramed("the bytes do not name their message")


def request(
    url: str,
    method: str,
    path: str,
    body: Any = None,
    *,
    timeout_s: float = TIMEOUT_S,
    tries: int = 1,
    context: ssl.SSLContext | None = None,
) -> Any:
    """Send a request to a registry; returns its answer. url: http(s)://[USER:PASSWORD@]HOST[:PORT][/PATH]. Raises
    RegistryError.

    tries: number of attempts while the registry does not answer or is busy. context: verifies the registry, if the system's
    authorities do not.
    """
    for left in range(tries - 1, -1, -1):
        try:
            status, raw = _exchange(Address(url, context), method, path, body, timeout_s)
        except (OSError, http.client.HTTPException) as error:
            if not left:
                reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
                raise NoRegistry(f"no registry answers at {without_login(url)}: {reason}") from None
        else:
            if status not in BUSY or not left:
                return _answer(url, status, raw)
        time.sleep(PAUSE_S)
    raise AssertionError("tries is at least 1")


def _exchange(address: Address, method: str, path: str, body: Any, timeout_s: float) -> tuple[int, bytes]:
    url = address.url
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
        raise BadAddress(
            f"{without_login(url)!r} is not the address of a registry, for example http://localhost:8081"
        )
    connection = connect(parts, address.context, timeout_s)
    headers = {"Content-Type": MEDIA_TYPE, TAKES_NEW_FIELDS: "true", **login_of(parts)}
    try:
        data = None if body is None else json.dumps(body).encode()
        connection.request(method, parts.path.rstrip("/") + path, data, headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _answer(url: str, status: int, raw: bytes) -> Any:
    try:
        answer = json.loads(raw) if raw else None
    except ValueError:
        raise NoRegistry(
            f"{without_login(url)} does not answer as a registry does (status {status})"
        ) from None
    if status >= 400:
        found = answer if isinstance(answer, dict) else {}
        code = found.get("error_code")
        raise RegistryError(
            str(found.get("message") or f"{without_login(url)} answers with status {status}"),
            code if isinstance(code, int) else status,
        )
    return answer


class Registry:
    """One registry, given by its address."""

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self.url = url
        self._timeout_s = timeout_s
        self._known: dict[int, Schema] = {}
        self._lock = threading.Lock()

    def by_id(self, schema_id: int) -> Schema:
        """The schema with this id. Raises RegistryError."""
        with self._lock:
            known = self._known.get(schema_id)
        if known is None:
            known = self._schema(self._ask("GET", f"/schemas/ids/{schema_id}"), schema_id)
            with self._lock:
                self._known[schema_id] = known
        return known

    def by_guid(self, guid: str) -> Schema:
        """What a GUID stands for; its id is 0. Raises RegistryError."""
        found = self._schema(self._ask("GET", f"/schemas/guids/{quote(guid, safe='')}"))
        return found._replace(id=0, guid=guid)

    def newest(self, subject: str) -> Schema:
        """The newest version of a subject, never cached. Raises RegistryError."""
        return self._schema(self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/latest"))

    def register(self, subject: str, kind: str, text: str) -> int:
        """The id of a schema in a subject; registers it as the newest version if it is not there. Raises RegistryError."""
        body = {"schema": text, "schemaType": kind}
        answer = self._ask("POST", f"/subjects/{quote(subject, safe='')}/versions", body)
        return int(answer["id"])

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        return request(self.url, method, path, body, timeout_s=self._timeout_s, tries=TRIES)

    def _schema(self, answer: Any, schema_id: int = 0) -> Schema:
        if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
            raise NoRegistry(
                f"{without_login(self.url)} does not answer as a registry does: there is no schema"
            )
        found: dict[str, str] = {}
        self._collect(answer.get("references") or (), found, ())
        return Schema(
            int(answer.get("id", schema_id)),
            str(answer.get("schemaType") or "AVRO"),
            answer["schema"],
            tuple(found.items()),
            int(answer.get("version") or 0),
            contract_of(answer),
        )

    def _collect(
        self, references: Sequence[Mapping[str, Any]], found: dict[str, str], above: tuple[str, ...]
    ) -> None:
        """Add the schemas referred to, each after its own references, to `found`."""
        for row in references:
            name, subject, version = str(row["name"]), str(row["subject"]), int(row["version"])
            if name in found:
                continue
            if name in above or len(found) >= DEPENDENCIES_MAX:
                raise RegistryError(f"the references of {subject} version {version} have no end")
            answer = self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true")
            self._collect(answer.get("references") or (), found, (*above, name))
            found[name] = answer["schema"]
