"""The part of a bundle about the cluster: metadata, options, groups, clients, sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from barnabas.kafka_tools import configs, quotas
from barnabas.kafka_tools.common import Admin
from barnabas.terminal.redaction import HIDDEN, is_secret
from barnabas.wire.messages.describe_configs import SOURCES

TOPICS_MAX: Final = 2_000
"""The bundle has the options of this many topics; of all others only names and partitions."""


def metadata(admin: Admin) -> dict[str, Any]:
    """Brokers, and topics with the leader, replicas and in-sync replicas of each partition."""
    nodes = admin.nodes()
    return {
        "brokers": {number: f"{host}:{port}" for number, (host, port) in nodes.items()},
        "controller": admin.client.cluster.controller,
        "topics": {name: shown(view) for name, view in admin.topics().items()},
    }


def shown(view: Any) -> Any:
    """A view of the client as plain JSON values."""
    if hasattr(view, "_asdict"):
        return {name: shown(value) for name, value in view._asdict().items()}
    if hasattr(view, "__dataclass_fields__"):
        return {name: shown(getattr(view, name)) for name in view.__dataclass_fields__}
    if isinstance(view, dict):
        return {str(key): shown(value) for key, value in view.items()}
    if isinstance(view, list | tuple | set | frozenset):
        return [shown(item) for item in view]
    return view if isinstance(view, int | float | str | bool | None) else str(view)


def options_of(admin: Admin, kind: str, name: str, *, own_only: bool) -> dict[str, Any]:
    """Options of one resource with their sources; secrets are hidden."""
    own = configs.own_sources(kind, name)
    return {
        entry.name: {
            "value": HIDDEN if entry.is_sensitive or (entry.value and is_secret(entry.name)) else entry.value,
            "source": SOURCES.get(entry.config_source, "UNKNOWN"),
        }
        for entry in configs.read_configs(admin, configs.Entity(kind, name), name)
        if not own_only or entry.config_source in own
    }


def broker_options(admin: Admin) -> dict[str, Any]:
    """All options of each broker, and those that are set for all brokers."""
    found = {
        str(node): options_of(admin, "brokers", str(node), own_only=False) for node in sorted(admin.nodes())
    }
    return {**found, "default": options_of(admin, "brokers", "", own_only=True)}


def topic_options(admin: Admin) -> dict[str, Any]:
    """The options that are set on topics themselves."""
    names = list(admin.topics())[:TOPICS_MAX]
    found = {name: options_of(admin, "topics", name, own_only=True) for name in names}
    return {name: options for name, options in found.items() if options}


def loggers(admin: Admin) -> dict[str, Any]:
    """The level of each broker's loggers."""
    return {
        str(node): {
            entry.name: entry.value
            for entry in configs.read_configs(admin, configs.Entity("broker-loggers", str(node)), str(node))
        }
        for node in sorted(admin.nodes())
    }


def groups(admin: Admin) -> list[dict[str, Any]]:
    """Every group with its type and state."""
    from barnabas.kafka_tools.groups import all_groups

    return [shown(group) for group in all_groups(admin)]


def clients(admin: Admin) -> dict[str, list[Any]]:
    """Who is connected to each broker, and whose records are converted."""
    from barnabas.cli.administration.clients import client_row, conversion_row
    from barnabas.wire.messages.connected_clients import ConnectedClientsRequest, ConnectedClientsResponse

    found: dict[str, list[Any]] = {"clients": [], "conversions": []}
    for node in sorted(admin.nodes()):
        answer = admin.node(node, ConnectedClientsRequest(), ConnectedClientsResponse)
        found["clients"] += [client_row(node, client) for client in answer.clients]
        found["conversions"] += [conversion_row(node, converted) for converted in answer.conversions]
    return found


def client_metrics(admin: Admin) -> list[Any]:
    """The metrics that clients have pushed."""
    from barnabas.cli.administration.clients import instance_row
    from barnabas.wire.messages.client_metrics import ClientMetricsRequest, ClientMetricsResponse

    request = ClientMetricsRequest(name_prefix="")
    return [
        instance_row(node, client)
        for node in sorted(admin.nodes())
        for client in admin.node(node, request, ClientMetricsResponse).clients
    ]


def log_dirs(admin: Admin) -> list[Any]:
    """The partitions in each broker's log dirs with their sizes."""
    from barnabas.kafka_tools.log_dirs import broker_row

    return [broker_row(admin, node, set()) for node in sorted(admin.nodes())]


def damage(admin: Admin) -> list[dict[str, Any]]:
    """The damaged records that brokers have met since they were started."""
    from barnabas.verify.log import known

    return known(admin)


def all_quotas(admin: Admin) -> list[dict[str, Any]]:
    """The quotas of users, clients and addresses."""
    rows = []
    for wanted in ({"user": None}, {"client-id": None}, {"user": None, "client-id": None}, {"ip": None}):
        rows += [{"entity": entity, "quotas": values} for entity, values in quotas.read(admin, wanted)]
    return rows


CLUSTER_PARTS: Final[dict[str, Callable[[Admin], Any]]] = {
    "metadata": metadata,
    "broker-options": broker_options,
    "topic-options": topic_options,
    "loggers": loggers,
    "groups": groups,
    "clients": clients,
    "client-metrics": client_metrics,
    "log-dirs": log_dirs,
    "damage": damage,
    "quotas": all_quotas,
}
