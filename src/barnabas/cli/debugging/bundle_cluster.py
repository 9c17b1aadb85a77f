"""The part of a bundle about the cluster: metadata, options, groups, clients, sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from barnabas.admin import Admin, ConfigKind, ConfigResource
from barnabas.cli.administration.config import is_own
from barnabas.terminal.redaction import HIDDEN, is_secret

TOPICS_MAX: Final = 2_000
"""The bundle has the options of this many topics; of all others only names and partitions."""


def metadata(admin: Admin) -> dict[str, Any]:
    """Brokers, and topics with the leader, replicas and in-sync replicas of each partition."""
    cluster = admin.cluster.describe()
    return {
        "brokers": {broker.id: f"{broker.host}:{broker.port}" for broker in cluster.brokers},
        "controller": cluster.controller,
        "topics": {name: shown(topic) for name, topic in admin.topics.list().items()},
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


def options_of(admin: Admin, resource: ConfigResource, *, own_only: bool) -> dict[str, Any]:
    """Options of one resource with their sources; secrets are hidden."""
    options = admin.configs.describe([resource])[resource]
    return {
        config.name: {
            "value": HIDDEN if config.is_sensitive or (config.value and is_secret(name)) else config.value,
            "source": config.source.name,
        }
        for name, config in sorted(options.items())
        if not own_only or is_own(resource, config.source)
    }


def brokers_of(admin: Admin) -> list[str]:
    """The numbers of the brokers."""
    return [str(broker.id) for broker in admin.cluster.describe().brokers]


def broker_options(admin: Admin) -> dict[str, Any]:
    """All options of each broker, and those that are set for all brokers."""
    options = {
        number: options_of(admin, ConfigResource(ConfigKind.BROKER, number), own_only=False)
        for number in brokers_of(admin)
    }
    return {**options, "default": options_of(admin, ConfigResource(ConfigKind.BROKER), own_only=True)}


def topic_options(admin: Admin) -> dict[str, Any]:
    """The options that are set on topics themselves."""
    names = list(admin.topics.list())[:TOPICS_MAX]
    options_by_topic = {
        name: options_of(admin, ConfigResource(ConfigKind.TOPIC, name), own_only=True) for name in names
    }
    return {name: options for name, options in options_by_topic.items() if options}


def loggers(admin: Admin) -> dict[str, Any]:
    """The level of each broker's loggers."""
    resources = [ConfigResource(ConfigKind.BROKER_LOGGER, number) for number in brokers_of(admin)]
    return {
        resource.name: {name: config.value for name, config in sorted(levels.items())}
        for resource, levels in admin.configs.describe(resources).require().items()
    }


def groups(admin: Admin) -> list[dict[str, Any]]:
    """Every group with its type and state."""
    return [shown(group) for rows in admin.groups.list().require().values() for group in rows]


def clients(admin: Admin) -> dict[str, list[Any]]:
    """Who is connected to each broker, and whose records are converted."""
    from barnabas.cli.administration.clients import client_row, conversion_row

    rows_by_kind: dict[str, list[Any]] = {"clients": [], "conversions": []}
    for node, answer in admin.inspection.clients().require().items():
        rows_by_kind["clients"] += [client_row(node, client) for client in answer.clients]
        rows_by_kind["conversions"] += [conversion_row(node, converted) for converted in answer.conversions]
    return rows_by_kind


def client_metrics(admin: Admin) -> list[Any]:
    """The metrics that clients have pushed."""
    from barnabas.cli.administration.clients import instance_row

    by_broker = admin.inspection.client_metrics().require()
    return [instance_row(node, client) for node, instances in by_broker.items() for client in instances]


def log_dirs(admin: Admin) -> list[Any]:
    """The partitions in each broker's log dirs with their sizes."""
    return [
        {"broker": node, "logDirs": [shown(folder) for folder in dirs]}
        for node, dirs in admin.log_dirs.describe().require().items()
    ]


def damage(admin: Admin) -> list[dict[str, Any]]:
    """The damaged records that brokers have met since they were started."""
    from barnabas.verify.log import known

    return known(admin)


def all_quotas(admin: Admin) -> list[dict[str, Any]]:
    """The quotas of users, clients and addresses."""
    return [
        {"entity": dict(entity.names), "quotas": dict(values)}
        for entity, values in admin.quotas.describe().items()
    ]


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
