"""The web console as a service."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas.http_client import Address
from barnabas.services.access import Access
from barnabas.services.option import ServiceOption
from barnabas.services.row import Row, ServiceContext, needs_extra
from barnabas.services.where import properties_of
from barnabas.terminal.errors import CliError, UsageError

if TYPE_CHECKING:
    from barnabas.console.main import ClusterOptions, ConsoleOptions
    from barnabas.console.oidc import OidcOptions
    from barnabas.http.server import HttpServer
    from barnabas.http_client import Address

FORMAT_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,30}")
ROLES: Final = ("none", "read", "operate", "admin")
_OWN: Final = {
    "name": ServiceOption("NAME", "What the cluster is called on the pages.", str, "local"),
    "also": ServiceOption(
        "NAME=WHERE",
        "A further cluster: its brokers (HOST:PORT,...), or a file with a client's properties; may be repeated.",
        str,
        repeats=True,
    ),
    "registry": ServiceOption(
        "URL",
        "The schema registry; NAME=URL for that of a further cluster; may be repeated.",
        str,
        repeats=True,
        names=("-r", "--registry"),
        env="BARNABAS_REGISTRY",
    ),
    "pipelines": ServiceOption(
        "URL",
        "The server of pipelines; NAME=URL for that of a further cluster; may be repeated.",
        str,
        repeats=True,
    ),
    "connect": ServiceOption(
        "URL",
        "A worker of Connect; NAME=URL for that of a further cluster; may be repeated.",
        str,
        repeats=True,
    ),
    "sql": ServiceOption(
        "URL", "The SQL server; NAME=URL for that of a further cluster; may be repeated.", str, repeats=True
    ),
    "monitor": ServiceOption(
        "URL",
        "The monitor that keeps the history; NAME=URL for that of a further cluster; may be repeated.",
        str,
        repeats=True,
    ),
    "logs-table": ServiceOption(
        "TOPIC=DIR",
        "The Delta table with older lines of a topic's log, of the first cluster; may be repeated.",
        str,
        repeats=True,
    ),
    "glue-schemas": ServiceOption(
        "DIR",
        "A folder with schemas of AWS Glue, answers of `aws glue get-schema-version` in files UUID.json; NAME=DIR for a "
        "further cluster; may be repeated.",
        str,
        repeats=True,
    ),
    "decoder": ServiceOption(
        "NAME=MODULE:FUNCTION",
        "A further format of keys and values: a function of Python that makes a JSON value of bytes; may be repeated.",
        str,
        repeats=True,
    ),
    "roles": ServiceOption(
        "FILE", "Who may do what: lines USER ROLE [CLUSTER [NAME]], ROLE one of none, read, operate, admin."
    ),
    "role": ServiceOption("ROLE", "What users without a line in --roles may do.", str, "admin"),
    "masks": ServiceOption(
        "FILE",
        "What readers may not see of records: lines TOPIC FIELD [HOW [ROLE]], HOW one of hide, last4, mark.",
    ),
    "audit-topic": ServiceOption(
        "TOPIC", "The topic that gets a record for each change. Default: only the log.", str
    ),
    "oidc": ServiceOption(
        "URL", "The identity provider (OpenID Connect) where people log in: its issuer.", str
    ),
    "oidc-client": ServiceOption("ID", "What the console is called there.", str),
    "oidc-secret": ServiceOption(
        "FILE", "The file with its secret there. Default: a public client, by PKCE alone."
    ),
    "oidc-user": ServiceOption(
        "CLAIM", "The claim of the token that is the user.", str, "preferred_username"
    ),
    "oidc-groups": ServiceOption(
        "CLAIM", "The claim with the groups, lines @GROUP ROLE of --roles.", str, "groups"
    ),
    "oidc-url": ServiceOption(
        "URL", "Where browsers reach the console, if it is behind a proxy. Default: where they ask.", str
    ),
    "mcp": ServiceOption(
        "read|change",
        "Serve assistants at /mcp by the Model Context Protocol, to read only, or to change things as well.",
        str,
    ),
}
OPTIONS: Final = {word: option._replace(in_start=True) for word, option in _OWN.items()}
SERVICES: Final = ("pipelines", "connect", "sql", "monitor")
"""The options that say where services answer, named as the services are in `start --with`."""
MCP: Final = ("read", "change")
"""What assistants may do."""


def _by_name(named: str | Iterable[str] | None, first: str, option: str) -> dict[str, str]:
    """Values by cluster: NAME=VALUE, or VALUE for the first one. Raises UsageError."""
    texts = [named] if isinstance(named, str) else list(named or ())
    by_name: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or "/" in name or ":" in name:
            name, value = first, text
        if not name or not value:
            raise UsageError(f"{option} {text!r} is not NAME=VALUE")
        if name in by_name:
            raise UsageError(f"{option} names {name} twice")
        by_name[name] = value
    return by_name


def _clusters(context: ServiceContext, prefix: str) -> Iterator[ClusterOptions]:
    from barnabas.client.errors import ClientError
    from barnabas.client.options import ClientOptions
    from barnabas.console.main import ClusterOptions
    from barnabas.http_client import Address

    values = context.values
    first: str = values["name"]
    where = {first: dict(context.client)}
    for name, text in _by_name(values["also"], "", f"{prefix}also").items():
        if name in where:
            raise UsageError(f"{prefix}also {name}: there is a cluster of this name already")
        where[name] = properties_of(text, f"{prefix}also")
    registries = _by_name(values["registry"], first, f"{prefix}registry")
    tables = _by_name(values["logs_table"], "", f"{prefix}logs-table")
    services = {word: _by_name(values[word], first, f"{prefix}{word}") for word in SERVICES}
    glue = _folders(_by_name(values["glue_schemas"], first, f"{prefix}glue-schemas"), f"{prefix}glue-schemas")
    decoders = {
        name: _function(name, text, f"{prefix}decoder")
        for name, text in _by_name(values["decoder"], "", f"{prefix}decoder").items()
    }
    for name in glue:
        if name not in where:
            raise UsageError(f"{prefix}glue-schemas {name}=...: there is no cluster of this name")
    for word, named in (("registry", registries), *services.items()):
        for name, address in named.items():
            if name not in where:
                raise UsageError(f"{prefix}{word} {name}=...: there is no cluster of this name")
            if not address.startswith(("http://", "https://")):
                raise UsageError(
                    f"{prefix}{word} {address!r} is not a URL, for example http://localhost:8081"
                )
    for name, properties in where.items():
        url: str | None = registries.get(name)
        try:
            client = ClientOptions.from_kafka({"client.id": "barnabas-console", **properties})
        except ClientError as error:
            raise UsageError(f"cluster {name}: {error}") from None
        if url is not None:
            registry = _address(Address(url))
        else:
            registry = context.registry if name == first else lambda: None
        where_of = {
            word: _service(context, word, named.get(name), name == first) for word, named in services.items()
        }
        yield ClusterOptions(
            name, client, registry, where_of, tables if name == first else {}, glue.get(name), decoders
        )


def _folders(named: Mapping[str, str], option: str) -> dict[str, Path]:
    folders = {name: Path(text).expanduser() for name, text in named.items()}
    for folder in folders.values():
        if not folder.is_dir():
            raise UsageError(f"{option} {folder}: there is no such folder")
    return folders


def _function(name: str, text: str, option: str) -> Callable[[bytes], Any]:
    """The function MODULE:FUNCTION. Raises UsageError."""
    from barnabas.console.records.decoding import FORMATS

    if not FORMAT_NAME.fullmatch(name) or name in FORMATS:
        raise UsageError(
            f"{option} {name}=...: the name of a format has small letters, and is none of {', '.join(FORMATS)}"
        )
    module, colon, function = text.partition(":")
    if not colon:
        raise UsageError(f"{option} {name}={text}: {text!r} is not MODULE:FUNCTION")
    try:
        found = getattr(import_module(module), function)
    except Exception as error:  # a module may raise anything
        raise UsageError(f"{option} {name}={text}: {type(error).__name__}: {error}") from None
    if not callable(found):
        raise UsageError(f"{option} {name}={text}: {function} is not a function")
    return found  # type: ignore[no-any-return]


def _address(address: Address) -> Callable[[], Address | None]:
    return lambda: address


def _service(
    context: ServiceContext, name: str, url: str | None, is_first: bool
) -> Callable[[], Address | None]:
    """Where a cluster's service answers: at the URL, otherwise in this process for the first cluster."""
    if url is not None:
        return _address(Address(url))
    return lambda: context.neighbour(name) if is_first else None


def make(context: ServiceContext) -> HttpServer:
    """A server that is not started yet. Raises UsageError, CliError."""
    from barnabas.console.main import make_server

    return make_server(options_of(context), context.http)


def check(values: Mapping[str, Any], prefix: str) -> None:
    """See Row. What extras are missing is said elsewhere."""
    if CONSOLE.missing() is not None:
        return
    from barnabas.http.server import HttpOptions

    if values["mcp"] is not None:
        check_mcp(values["mcp"], f"{prefix}mcp")
    options_of(ServiceContext(values, {"bootstrap.servers": "localhost"}, HttpOptions(""), Access()), prefix)


def check_mcp(value: str, option: str) -> None:
    """Raises UsageError if assistants cannot be allowed this; CliError if their extra is not installed."""
    if value not in MCP:
        raise UsageError(f"{option} {value!r} is not one of {', '.join(MCP)}")
    if find_spec("mcp") is None:
        raise CliError(needs_extra("the server for assistants", "mcp", "mcp"))


def options_of(context: ServiceContext, prefix: str = "--") -> ConsoleOptions:
    """What the console shows, and to whom. prefix: of the options' names in messages. Raises UsageError, CliError."""
    from barnabas.console.main import ConsoleOptions
    from barnabas.console.records.masking import NO_MASKING, MasksError, read_masks
    from barnabas.console.roles import Role, Roles, RolesError, read_roles

    values = context.values
    if values["role"] not in ROLES:
        raise UsageError(f"{prefix}role {values['role']!r} is not one of {', '.join(ROLES)}")
    otherwise = Role[values["role"].upper()]
    try:
        roles = Roles((), otherwise) if values["roles"] is None else read_roles(values["roles"], otherwise)
    except RolesError as error:
        raise UsageError(str(error)) from None
    try:
        masking = NO_MASKING if values["masks"] is None else read_masks(values["masks"])
    except MasksError as error:
        raise UsageError(str(error)) from None
    return ConsoleOptions(
        list(_clusters(context, prefix)),
        roles,
        values["audit_topic"],
        masking,
        values["mcp"],
        _oidc(values, prefix),
    )


def _oidc(values: Mapping[str, Any], prefix: str) -> OidcOptions | None:
    """The identity provider; None without one. Raises UsageError, CliError."""
    named = [word for word in ("oidc_client", "oidc_secret", "oidc_url") if values.get(word) is not None]
    if values.get("oidc") is None:
        if named:
            raise UsageError(f"{prefix}{named[0].replace('_', '-')} needs {prefix}oidc URL")
        return None
    from barnabas.console.oidc import OidcOptions, check_issuer

    if find_spec("jwt") is None:
        raise CliError(needs_extra("the login at an identity provider", "jwt", "security"))
    wrong = check_issuer(values["oidc"])
    if wrong is not None:
        raise UsageError(f"{prefix}oidc {values['oidc']!r} {wrong}")
    if values["oidc_client"] is None:
        raise UsageError(
            f"{prefix}oidc needs {prefix}oidc-client ID, what the console is called at the provider"
        )
    if values["role"] == "admin":
        raise UsageError(
            f"with {prefix}oidc, everybody at the provider without a line in {prefix}roles would be an admin; say "
            f"{prefix}role none (or read)"
        )
    secret = None
    if values["oidc_secret"] is not None:
        try:
            secret = values["oidc_secret"].read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"{prefix}oidc-secret {values['oidc_secret']}: {reason}") from None
        if not secret:
            raise UsageError(f"{prefix}oidc-secret {values['oidc_secret']}: the file is empty")
    return OidcOptions(
        values["oidc"], values["oidc_client"], secret, values["oidc_url"], values["oidc_user"], values["oidc_groups"]
    )  # fmt: skip


def secret_files(values: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """See Row."""
    if values.get("oidc_secret") is not None:
        yield values["oidc_secret"], "the secret of the console at its identity provider"
    for text in values["also"] or ():
        path = Path(text.partition("=")[2]).expanduser()
        if path.is_file():
            yield path, "passwords"


CONSOLE: Final = Row(
    name="console",
    port=8080,
    who="the console",
    about="Show and change clusters in a browser.",
    examples=(
        "barnabas console",
        "barnabas console -b kafka1:9092 --registry http://schemas1:8081 --listen 0.0.0.0:8080 --secure DIR",
    ),
    make=make,
    ready=lambda context, health: f"cluster {context.client['bootstrap.servers']}",
    options=OPTIONS,
    secret_files=secret_files,
    check=check,
    has_login=lambda values: values.get("oidc") is not None,
)
