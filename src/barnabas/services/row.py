"""What a service declares of itself, once: read by its own command and by `barnabas start --with`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.extras import how_to_install
from barnabas.services.option import ServiceOption

if TYPE_CHECKING:
    from barnabas.http.server import HttpOptions, HttpServer
    from barnabas.http_client import Address
    from barnabas.observe.metric import Measure
    from barnabas.services.access import Access


def _no_neighbour(name: str) -> Address | None:
    return None


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """What a service is made of. values: of its own options, by field. client: librdkafka's properties, with
    bootstrap.servers. neighbour: the address of another service in this process by its name, once it has started; None
    without one. measure: asks a broker in this process for its metrics; None if there is none.
    """

    values: Mapping[str, Any]
    client: Mapping[str, str]
    http: HttpOptions
    access: Access
    neighbour: Callable[[str], Address | None] = _no_neighbour
    measure: Measure | None = None

    def registry(self) -> Address | None:
        """The address of the schema registry in this process, once it has started; None without one."""
        return self.neighbour("registry")


@dataclass(frozen=True, slots=True)
class Row:
    """One service. who: its name in sentences. about: what it does, as a sentence. options: its own, by word.

    command: what runs it is called so. make: the server, not started yet; raises UsageError and CliError, and ImportError
    if an extra is not installed. ready: what the line that begins with `ready` tells about it; called with what
    `GET /health` says as well. modules: what has to be installed; extra: which of Barnabas's extras does that.
    body_mb, timeout_s: the defaults of its limits. requests: how many it processes at a time.
    check: raises UsageError for wrong values of its options, whose names begin with the prefix; called before anything runs.
    secret_files: (path, what it contains) of its own options that only the service should be able to read.
    has_login: whether its API has a login of its own with these values.
    """

    name: str
    port: int
    who: str
    about: str
    examples: tuple[str, ...]
    make: Callable[[ServiceContext], HttpServer]
    ready: Callable[[ServiceContext, Mapping[str, Any]], str]
    options: Mapping[str, ServiceOption] = field(default_factory=dict)
    secret_files: Callable[[Mapping[str, Any]], Iterable[tuple[Path, str]]] = lambda values: ()
    has_login: Callable[[Mapping[str, Any]], bool] = lambda values: False
    check: Callable[[Mapping[str, Any], str], None] = lambda values, prefix: None
    command: str = "start"
    extra: str = "services"
    modules: Sequence[str] = ("starlette", "uvicorn")
    body_mb: int = 16
    timeout_s: float = 60.0
    requests: int = 1_000

    @property
    def listen(self) -> str:
        """Where it answers by default."""
        return f"127.0.0.1:{self.port}"

    def missing(self) -> str | None:
        """A sentence about what has to be installed before the service can run; None if everything is there."""
        absent = next((module for module in self.modules if find_spec(module) is None), None)
        return None if absent is None else needs_extra(self.who, absent, self.extra)


def needs_extra(who: str, module: str | None, extra: str) -> str:
    """The message of the error when a module of an extra is not installed."""
    return f"{who} needs an extra that is not installed ({module}); install it with {how_to_install(extra)}"
