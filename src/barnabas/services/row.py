"""What a service declares of itself, once: read by its own command and by `barnabas start --with`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.services.option import ServiceOption

if TYPE_CHECKING:
    from barnabas.client.urls import Address
    from barnabas.http.server import HttpOptions, HttpServer
    from barnabas.observe.metrics import Sample
    from barnabas.services.access import Access


def _no_registry() -> Address | None:
    return None


@dataclass(frozen=True, slots=True)
class Given:
    """What a service is made of. values: of its own options, by field. client: librdkafka's properties, with
    bootstrap.servers. registry: the address of a schema registry; called when the service starts.
    measure: asks a broker in this process for its metrics; None if there is none.
    """

    values: Mapping[str, Any]
    client: Mapping[str, str]
    http: HttpOptions
    access: Access
    registry: Callable[[], Address | None] = _no_registry
    measure: Callable[[], Future[list[Sample]]] | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One service. who: its name in sentences. about: what it does, as a sentence. options: its own, by word.

    make: the server, not started yet; raises UsageError and CliError, and ImportError if an extra is not installed.
    ready: what the line that begins with `ready` tells about it.
    secret_files: (path, what it contains) of its own options that only the service should be able to read.
    has_login: whether its API has a login of its own with these values.
    """

    name: str
    port: int
    who: str
    about: str
    examples: tuple[str, ...]
    make: Callable[[Given], HttpServer]
    ready: Callable[[Given], str]
    options: Mapping[str, ServiceOption] = field(default_factory=dict)
    secret_files: Callable[[Mapping[str, Any]], Iterable[tuple[Path, str]]] = lambda values: ()
    has_login: Callable[[Mapping[str, Any]], bool] = lambda values: False

    @property
    def listen(self) -> str:
        """Where it answers by default."""
        return f"127.0.0.1:{self.port}"
