"""A client of a schema registry.

    registry = Registry("http://localhost:8081")
    schema = registry.newest("orders-value")
    record = frame(schema.id, payload)  # schemas/framing.py

The meaning of an id never changes, so results by id are cached. Blocking; threads may share one object.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from barnabas.http_client import Address, NoAnswer, ask, without_login
from barnabas.http_client import BadAddress as NoAddress
from barnabas.schemas.framing import Schema, contract_of

if TYPE_CHECKING:
    import ssl

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
TAKES_NEW_FIELDS: Final = "Confluent-Accept-Unknown-Properties"
"""The header with which clients get the fields that are new in Confluent's registry of version 8.0."""
TIMEOUT_S: Final = 30.0
TRIES: Final = 3
PAUSE_S: Final = 0.5
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
    address = Address(url if "://" in url else f"http://{url}", context)
    headers = {"Content-Type": MEDIA_TYPE, TAKES_NEW_FIELDS: "true"}
    data = None if body is None else json.dumps(body).encode()
    for left in range(tries - 1, -1, -1):
        try:
            answer = ask(address, method, path, data, headers, timeout_s=timeout_s)
        except NoAddress:
            raise BadAddress(
                f"{without_login(url)!r} is not the address of a registry, for example http://localhost:8081"
            ) from None
        except NoAnswer as error:
            if not left:
                raise NoRegistry(f"no registry answers at {without_login(url)}: {error}") from None
        else:
            if answer.status not in BUSY or not left:
                return _answer(url, answer.status, answer.body)
        time.sleep(PAUSE_S)
    raise AssertionError("tries is at least 1")


def _answer(url: str, status: int, raw: bytes) -> Any:
    try:
        answer = json.loads(raw) if raw else None
    except ValueError:
        raise NoRegistry(
            f"{without_login(url)} does not answer as a registry does (status {status})"
        ) from None
    if status >= 400:
        fields = answer if isinstance(answer, dict) else {}
        code = fields.get("error_code")
        raise RegistryError(
            str(fields.get("message") or f"{without_login(url)} answers with status {status}"),
            code if isinstance(code, int) else status,
        )
    return answer


class RegistryClient:
    """One registry, given by its address. context: verifies it, if the system's authorities do not."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = TIMEOUT_S,
        tries: int = TRIES,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.url = url
        self._tries = tries
        self._context = context
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
        schema = self._schema(self._ask("GET", f"/schemas/guids/{quote(guid, safe='')}"))
        return schema._replace(id=0, guid=guid)

    def newest(self, subject: str) -> Schema:
        """The newest version of a subject, never cached. Raises RegistryError."""
        return self._schema(self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/latest"))

    def register(self, subject: str, kind: str, text: str) -> int:
        """The id of a schema in a subject; registers it as the newest version if it is not there. Raises RegistryError."""
        body = {"schema": text, "schemaType": kind}
        answer = self._ask("POST", f"/subjects/{quote(subject, safe='')}/versions", body)
        return int(answer["id"])

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        return request(
            self.url, method, path, body, timeout_s=self._timeout_s, tries=self._tries, context=self._context
        )

    def _schema(self, answer: Any, schema_id: int = 0) -> Schema:
        if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
            raise NoRegistry(
                f"{without_login(self.url)} does not answer as a registry does: there is no schema"
            )
        dependencies: dict[str, str] = {}
        self._collect(answer.get("references") or (), dependencies, ())
        return Schema(
            int(answer.get("id", schema_id)),
            str(answer.get("schemaType") or "AVRO"),
            answer["schema"],
            tuple(dependencies.items()),
            int(answer.get("version") or 0),
            contract_of(answer),
        )

    def _collect(
        self, references: Sequence[Mapping[str, Any]], dependencies: dict[str, str], above: tuple[str, ...]
    ) -> None:
        """Add the schemas referred to, each after its own references, to `dependencies`."""
        for row in references:
            name, subject, version = str(row["name"]), str(row["subject"]), int(row["version"])
            if name in dependencies:
                continue
            if name in above or len(dependencies) >= DEPENDENCIES_MAX:
                raise RegistryError(f"the references of {subject} version {version} have no end")
            answer = self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true")
            self._collect(answer.get("references") or (), dependencies, (*above, name))
            dependencies[name] = answer["schema"]
