"""`barnabas start --with registry`: services in the process of a broker."""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas.services.access import ACCESS, INSIDE_USER, OPEN_HELP, Access, check_openness, exposed
from barnabas.services.metrics_door import MetricsDoor, is_of_this_machine
from barnabas.services.option import MEGABYTE, ServiceOption, defaults, field_of, require_positive
from barnabas.services.row import Row, ServiceContext, needs_extra
from barnabas.services.table import ROWS
from barnabas.terminal.errors import UsageError
from barnabas.terminal.properties import require_known

if TYPE_CHECKING:
    from barnabas.broker.main import Companion, MakeCompanion
    from barnabas.http.server import HttpOptions, HttpServer
    from barnabas.http_client import Address
    from barnabas.observe.metric import Measure
    from barnabas.services.otlp import Pusher

PREFIX: Final = "--services-"
OTLP_MODULES: Final = ("opentelemetry", "prometheus_client", "starlette")
METRICS_OFF: Final = "off"
NOT_GIVEN: Final = "secure"
"""What the services share with the broker: its --secure."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that name services and their addresses."""
    parser.add_argument(
        "--with",
        dest="services",
        metavar="NAMES",
        default="",
        help=f"Services to run in the same process, with commas between them: {', '.join(ROWS)}.",
    )
    for row in ROWS.values():
        parser.add_argument(
            f"--{row.name}-listen",
            metavar="HOST:PORT",
            default=row.listen,
            help=f"Where {row.name} answers. Default: {row.listen}.",
        )
        for word, option in _in_start(row).items():
            parser.add_argument(
                f"--{row.name}-{word}",
                type=option.kind,
                action="append" if option.repeats else "store",
                default=option.default,
                metavar=option.metavar,
                help=f"Of {row.name}: {option.help}",
            )
    parser.add_argument(
        "--metrics",
        dest="metrics_address",
        metavar="HOST:PORT",
        help=f"Where metrics are served, or {METRICS_OFF}. Default: {ROWS['metrics'].listen}, for this machine alone, "
        "unless that is taken, or with --secure.",
    )
    parser.add_argument(
        "--otlp",
        metavar="URL",
        help="Also push metrics to this collector of OpenTelemetry, e.g. http://localhost:4318.",
    )
    parser.add_argument(
        "--otlp-interval-s", type=float, default=15.0, metavar="SECONDS", help="Time between two pushes."
    )
    parser.add_argument(
        f"{PREFIX}client",
        type=Path,
        metavar="FILE",
        help="Properties with which the services connect to the broker (librdkafka's names). Default: without a login.",
    )
    for word, option in ACCESS.items():
        if word != NOT_GIVEN:
            parser.add_argument(
                f"{PREFIX}{word}",
                type=option.kind,
                action="append" if option.repeats else "store",
                metavar=option.metavar,
                help=f"Of the services: {option.help}",
            )
    parser.add_argument(f"{PREFIX}open", action="store_true", help=f"Of the services: {OPEN_HELP}")
    parser.add_argument(
        "-r",
        "--registry",
        dest="schema_registry",
        metavar="URL",
        default=os.environ.get("BARNABAS_REGISTRY"),
        help="The registry that rest uses. Default: the one of --with.",
    )
    parser.add_argument(
        "--schema-registry", dest="schema_registry", default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )


def _in_start(row: Row) -> dict[str, ServiceOption]:
    """The options of a service that `barnabas start` has as well."""
    return {word: option for word, option in row.options.items() if option.in_start}


def _values_of(row: Row, options: argparse.Namespace) -> dict[str, Any]:
    """The values of a service's options, by field. Raises UsageError."""
    values = defaults(row.options)
    for word in _in_start(row):
        values[field_of(word)] = getattr(options, field_of(f"{row.name}-{word}"))
    if "registry" in values and values["registry"] is None:
        values["registry"] = options.schema_registry
    require_positive(row.options, values)
    row.check(values, f"--{row.name}-")
    return values


def service_names(options: argparse.Namespace) -> list[str]:
    """The services of --with, each once, in the order in which they start."""
    names = {name.strip() for name in options.services.split(",")}
    return [name for name in ROWS if name in names]


def access_of(options: argparse.Namespace) -> Access:
    """TLS and users of the services."""
    access_options = {
        word.replace("-", "_"): getattr(options, f"services_{word}".replace("-", "_"))
        for word in ACCESS
        if word != NOT_GIVEN
    }
    secure = None if options.secure is None else options.secure.expanduser().absolute()
    return Access(
        **access_options, secure=secure, is_open=options.services_open, prefix=PREFIX, is_inside=True
    )


class Beside:
    """The metrics that a broker serves in any case or pushes, and the services of --with. See Companion."""

    def __init__(self, door: MetricsDoor | None, pusher: Pusher | None, services: Companion | None) -> None:
        self._door, self._pusher, self._services = door, pusher, services

    def start(self) -> None:
        """See Companion."""
        if self._services is not None:
            self._services.start()
        if self._door is not None:
            self._door.start()
        if self._pusher is not None:
            self._pusher.start()

    def stop(self) -> bool:
        """See Companion."""
        if self._pusher is not None:
            self._pusher.stop()
        has_ended = self._door is None or self._door.stop()
        return (self._services is None or self._services.stop()) and has_ended

    def registry(self) -> Address | None:
        """See Companion."""
        return None if self._services is None else self._services.registry()


def companion_of(options: argparse.Namespace) -> MakeCompanion | None:
    """A function that makes what runs beside the broker from the broker's addresses; None if there is nothing. Raises
    ValueError for a service that is unknown or not installed, and for wrong options.
    """
    address, collector = _door_of(options), _collector_of(options)
    services = _services_of(options)
    if (address is None and collector is None) or options.worker:
        return services

    def companion(address_of: Callable[[str], str], measure: Measure) -> Companion:
        door = None if address is None else MetricsDoor(address, measure)
        companion_made = None if services is None else services(address_of, measure)
        return Beside(
            door,
            None if collector is None else _pusher(collector, options.otlp_interval_s, measure),
            companion_made,
        )

    return companion


def _collector_of(options: argparse.Namespace) -> Address | None:
    """Where metrics are pushed; None if that is nowhere. Raises ValueError."""
    if options.otlp is None or options.worker:
        return None
    if not options.otlp_interval_s >= 0.1:
        raise ValueError(f"--otlp-interval-s {options.otlp_interval_s:g} is less than 0.1")
    absent = next((name for name in OTLP_MODULES if find_spec(name) is None), None)
    if absent is not None:
        raise ValueError(f"--otlp: {needs_extra('pushing metrics', absent, 'telemetry')}")
    from barnabas.http_client import BadAddress
    from barnabas.services.otlp import collector_of

    try:
        return collector_of(options.otlp)
    except BadAddress:
        raise ValueError(
            f"--otlp {options.otlp!r} is not the address of an HTTP service, for example http://localhost:4318"
        ) from None


def _pusher(collector: Address, interval_s: float, measure: Measure) -> Pusher:
    from barnabas.services.otlp import Pusher

    return Pusher(collector, measure, f"{socket.gethostname()}/{measure.node_id}", interval_s)


def _door_of(options: argparse.Namespace) -> str | None:
    """Where metrics are served besides --with; None if that is nowhere, or if --with does it. Metrics for other machines,
    or of a broker with --secure, are those of --with, which has TLS and users. Raises ValueError.
    """
    address: str | None = options.metrics_address
    row = ROWS["metrics"]
    if address == METRICS_OFF or row.name in service_names(options):
        return None
    if address is None:
        return None if options.secure is not None or row.missing() else row.listen
    if is_of_this_machine(address) and options.secure is None and not row.missing():
        return address
    options.services = ",".join(filter(None, (options.services, row.name)))
    options.metrics_listen = address
    return None


def _services_of(options: argparse.Namespace) -> MakeCompanion | None:
    """The services of --with; see companion_of."""
    names = [name.strip() for name in options.services.split(",") if name.strip()]
    for name in names:
        if name not in ROWS:
            raise ValueError(f"--with {name!r} is not one of {', '.join(ROWS)}")
    if not names or options.worker:
        return None
    for name in names:
        absent = ROWS[name].missing()
        if absent is not None:
            raise ValueError(f"--with {name}: {absent}")
    try:
        services = CheckedServices(options)
    except UsageError as error:
        raise ValueError(str(error)) from None
    return services.companion


def registry_option(options: argparse.Namespace) -> dict[str, str]:
    """Where the broker's other workers find the registry of --with.

    Nothing if its port is chosen at the start, or if it requires a login, which only this process has.
    """
    address: str = options.registry_listen
    if "registry" not in service_names(options) or address.endswith(":0"):
        return {}
    access = access_of(options)
    if access.tls() is not None or access.has_users:
        return {}
    host, _, port = address.rpartition(":")
    host = "127.0.0.1" if host in ("", "0.0.0.0", "[::]") else host
    return {"confluent.schema.registry.url": f"http://{host}:{port}"}


def warnings_of(options: argparse.Namespace, *, knows_registry: bool) -> Iterator[str]:
    """The warnings about files that others may read, and about a registry that others cannot find or log in to.
    knows_registry: whether the broker's configuration names a registry. Raises UsageError.
    """
    if service_names(options) and not options.worker:
        yield from exposed(_secret_files(options))
    if "registry" not in service_names(options) or options.worker:
        return
    from barnabas.http.listening import parse_listen
    from barnabas.security.openness import is_loopback

    access, address = access_of(options), options.registry_listen
    if options.workers > 1 and not knows_registry and not registry_option(options):
        why = "its port is chosen at the start" if address.endswith(":0") else "it asks for TLS or a login"
        yield (
            f"the other --workers do not know the registry of --with, since {why}: they refuse what is produced to topics "
            "with schema validation; set confluent.schema.registry.url (and confluent.basic.auth.user.info)"
        )
    shares_key = access.secure is not None and access.tls_cert is None
    if access.has_users and not shares_key and not is_loopback(parse_listen(address)[0]):
        origin = "of the key of its certificate" if access.tls() is not None else "at random"
        yield (
            f"services of this process log in to each other with a password that is made {origin}: a registry on a host "
            "without it refuses what rest registers here; use one --secure DIR on all hosts, or --registry with a "
            "user and password"
        )


def _secret_files(options: argparse.Namespace) -> Iterator[tuple[Path, str]]:
    """The files with secrets of the services alone; the broker itself warns of those in --secure. Raises UsageError."""
    yield from replace(access_of(options), secure=None).secret_files()
    if options.services_client is not None:
        yield options.services_client.expanduser(), "passwords"
    for name in service_names(options):
        yield from ROWS[name].secret_files(_values_of(ROWS[name], options))


def client_properties(file: Path | None) -> dict[str, str]:
    """How the services connect to the broker. Raises UsageError."""
    if file is None:
        return {}
    from barnabas.config.option import ConfigError
    from barnabas.config.properties import parse_properties

    try:
        properties = {name: text for name, text, _ in parse_properties(file.expanduser().read_text())}
    except OSError as error:
        raise UsageError(f"{PREFIX}client: cannot read {file}: {error.strerror}") from None
    except (UnicodeDecodeError, ConfigError) as error:
        raise UsageError(f"{PREFIX}client: cannot read {file}: {error}") from None
    require_known(properties, f"{PREFIX}client: {file}:")
    properties.pop("bootstrap.servers", None)  # this broker
    return properties


@dataclass(frozen=True, slots=True)
class _Offered:
    """One service. values: of its options, by field. http: how it is offered."""

    row: Row
    values: Mapping[str, Any]
    http: HttpOptions


class CheckedServices:
    """The services of one command line, checked as far as possible before the broker runs. Raises UsageError."""

    def __init__(self, options: argparse.Namespace) -> None:
        from barnabas.http.guard import Limits
        from barnabas.http.server import HttpOptions

        self._client = client_properties(options.services_client)
        self._access = access = access_of(options)
        tls, users = access.tls(), access.authenticate()
        self._context = access.within()
        self._login = f"{INSIDE_USER}:{access.inside_password()}@" if users is not None else ""
        self._offered = []
        for name in service_names(options):
            row, listen = ROWS[name], getattr(options, f"{name}_listen")
            values = _values_of(row, options)
            has_login = users is not None or row.has_login(values)
            check_openness(listen, access, tls, has_login=has_login, option=f"--{name}-listen")
            http = HttpOptions(
                listen,
                Limits(row.body_mb * MEGABYTE, row.timeout_s, row.requests),
                cors_origins=access.origins(),
                names=access.names(),
                tls=tls,
                authenticate=users,
                connections=access.connections(),
            )
            self._offered.append(_Offered(row, values, http))
        self._servers: dict[str, HttpServer] = {}

    def companion(self, address_of: Callable[[str], str], measure: Measure) -> Companion:
        """See MakeCompanion. Raises ClientError."""
        from barnabas.http.server import ServerThread

        client = dict(self._client)
        client["bootstrap.servers"] = address_of(client.get("security.protocol", "PLAINTEXT").upper())
        for offered in self._offered:
            context = ServiceContext(
                offered.values, client, offered.http, self._access, self._neighbour, measure
            )
            self._servers[offered.row.name] = offered.row.make(context)
        return ServerThread(list(self._servers.values()), lambda: self._neighbour("registry"))

    def _neighbour(self, name: str) -> Address | None:
        """Where another service of this process answers, once it has started. See ServiceContext."""
        from barnabas.http_client import Address

        server = self._servers.get(name)
        if server is None or not server.url:
            return None
        scheme, _, rest = server.url.partition("://")
        return Address(f"{scheme}://{self._login}{rest}", self._context)
