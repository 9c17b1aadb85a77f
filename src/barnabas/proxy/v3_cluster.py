"""API v3: clusters, brokers, and the options of brokers and topics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.responses import Response

from barnabas.admin import (
    Broker,
    ClusterView,
    Config,
    ConfigChange,
    ConfigKind,
    ConfigResource,
    ConfigSource,
    back_to_default,
    set_to,
)
from barnabas.http.errors import HttpError
from barnabas.proxy.call import ProxyCall, answer, no_content, require_known, require_list, require_text
from barnabas.proxy.errors import INVALID_PAYLOAD
from barnabas.proxy.v3_shapes import Shapes, collection, config_row, shapes_of

BROKERS_OWN: Final = (ConfigSource.DYNAMIC_BROKER_CONFIG, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)

Work = Callable[[ProxyCall], Awaitable[Response]]


async def describe_cluster(call: ProxyCall) -> ClusterView:
    """Brokers and controller. Raises HttpError."""
    kafka = call.services.kafka
    return await kafka.ask(kafka.admin.cluster.describe())


def _cluster(shapes: Shapes, cluster: ClusterView) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "acls": shapes.related("acls"),
        "brokers": shapes.related("brokers"),
        "broker_configs": shapes.related("broker-configs"),
        "consumer_groups": shapes.related("consumer-groups"),
        "topics": shapes.related("topics"),
        "partition_reassignments": shapes.related("topics", "-", "partitions", "-", "reassignment"),
    }
    if cluster.controller >= 0:
        fields = {"controller": shapes.related("brokers", cluster.controller), **fields}
    return shapes.resource("KafkaCluster", (), (), fields)


async def list_clusters(call: ProxyCall) -> Response:
    """GET /v3/clusters: the one cluster that this service is connected to."""
    shapes = Shapes(call.base_url(), await call.services.kafka.cluster_id())
    return collection("KafkaClusterList", shapes.root, [_cluster(shapes, await describe_cluster(call))])


async def get_cluster(call: ProxyCall) -> Response:
    """GET /v3/clusters/{cluster}."""
    return answer(_cluster(await shapes_of(call), await describe_cluster(call)))


# --- brokers ------------------------------------------------------------------------------------------


def _broker(shapes: Shapes, node: Broker) -> dict[str, Any]:
    path = ("brokers", node.id)
    fields = {
        "broker_id": node.id,
        "host": node.host,
        "port": node.port,
        "rack": node.rack,
        "configs": shapes.related(*path, "configs"),
        "partition_replicas": shapes.related(*path, "partition-replicas"),
    }
    return shapes.resource("KafkaBroker", path, (("broker", node.id),), fields)


async def list_brokers(call: ProxyCall) -> Response:
    """GET .../brokers."""
    shapes = await shapes_of(call)
    nodes = (await describe_cluster(call)).brokers
    return collection("KafkaBrokerList", shapes.url("brokers"), [_broker(shapes, node) for node in nodes])


def _no_broker(call: ProxyCall) -> HttpError:
    return HttpError(404, f"Broker {call.part('broker')[:40]} cannot be found.")


async def get_broker(call: ProxyCall) -> Response:
    """GET .../brokers/{broker}."""
    shapes = await shapes_of(call)
    number = call.number_part("broker", _no_broker(call))
    for node in (await describe_cluster(call)).brokers:
        if node.id == number:
            return answer(_broker(shapes, node))
    raise _no_broker(call)


# --- options ------------------------------------------------------------------------------------------


class Options:
    """The requests for options of one kind. path, names: of the options' owner in a URL and in resource names."""

    def __init__(
        self,
        kind: str,
        owner: Callable[[ProxyCall], ConfigResource],
        path: Callable[[ProxyCall], tuple[Any, ...]],
        names: Callable[[ProxyCall], tuple[tuple[str, Any], ...]],
        more: Callable[[ProxyCall], dict[str, Any]],
    ) -> None:
        self.kind, self.owner, self.path, self.names, self.more = kind, owner, path, names, more

    def row(self, call: ProxyCall, shapes: Shapes, entry: Config) -> dict[str, Any]:
        """The JSON of one option."""
        return config_row(shapes, self.kind, self.path(call), self.names(call), entry, **self.more(call))

    async def list(self, call: ProxyCall) -> Response:
        """All options."""
        shapes = await shapes_of(call)
        entries = await call.services.kafka.configs(self.owner(call))
        rows = [self.row(call, shapes, entry) for entry in entries]
        return collection(f"{self.kind}List", shapes.url(*self.path(call)), rows)

    async def get(self, call: ProxyCall) -> Response:
        """One option. Raises HttpError 404."""
        shapes = await shapes_of(call)
        name = call.part("name")
        for entry in await call.services.kafka.configs(self.owner(call)):
            if entry.name == name:
                return answer(self.row(call, shapes, entry))
        raise HttpError(404, f"Config {name[:100]} cannot be found.")

    async def put(self, call: ProxyCall) -> Response:
        """Sets one option."""
        await shapes_of(call)
        value = _value(await call.body(), "value")
        await call.services.kafka.alter(self.owner(call), change_of(call.part("name"), value))
        return no_content()

    async def delete(self, call: ProxyCall) -> Response:
        """Resets one option to its default."""
        await shapes_of(call)
        await call.services.kafka.alter(self.owner(call), change_of(call.part("name"), None))
        return no_content()

    async def alter(self, call: ProxyCall) -> Response:
        """Sets or resets several options at once, all or none."""
        await shapes_of(call)
        changes, validate_only = read_changes(await call.body())
        await call.services.kafka.alter(self.owner(call), changes, validate_only=validate_only)
        return no_content()


def _value(row: dict[str, Any], name: str) -> str | None:
    value = row.get(name)
    if value is not None and not isinstance(value, (str, int, float)):
        raise HttpError(422, f"{name} must be a text or a number", INVALID_PAYLOAD)
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def change_of(name: str, value: str | None) -> list[ConfigChange]:
    """The change that sets an option, or puts it back to its default (None)."""
    return back_to_default([name]) if value is None else set_to({name: value})


def read_changes(body: dict[str, Any]) -> tuple[list[ConfigChange], bool]:
    """The changes of an :alter request, and whether they are only to be checked. Raises HttpError 422."""
    changes: list[ConfigChange] = []
    require_known(body, frozenset({"data", "validate_only"}))
    for index, row in enumerate(require_list(body, "data")):
        require_known(row, frozenset({"name", "value", "operation"}))
        operation = str(row.get("operation") or "SET").upper()
        name = require_text(row, "name")
        if operation not in ("SET", "DELETE"):
            raise HttpError(422, f"data[{index}].operation is neither SET nor DELETE", INVALID_PAYLOAD)
        changes += change_of(name, None if operation == "DELETE" else _value(row, "value") or "")
    return changes, body.get("validate_only") is True


def _broker_owner(call: ProxyCall) -> ConfigResource:
    return ConfigResource(ConfigKind.BROKER, str(call.number_part("broker", _no_broker(call))))


BROKER_OPTIONS: Final = Options(
    "KafkaBrokerConfig",
    _broker_owner,
    lambda call: ("brokers", call.part("broker"), "configs"),
    lambda call: (("broker", call.part("broker")),),
    lambda call: {"broker_id": int(call.part("broker"))},
)
CLUSTER_OPTIONS: Final = Options(
    "KafkaClusterConfig",
    lambda call: ConfigResource(ConfigKind.BROKER, ""),
    lambda call: ("broker-configs",),
    lambda call: (("broker-config", None),),
    lambda call: {"config_type": "BROKER"},
)
TOPIC_OPTIONS: Final = Options(
    "KafkaTopicConfig",
    lambda call: ConfigResource(ConfigKind.TOPIC, call.part("topic")),
    lambda call: ("topics", call.part("topic"), "configs"),
    lambda call: (("topic", call.part("topic")),),
    lambda call: {"topic_name": call.part("topic")},
)


async def all_broker_configs(call: ProxyCall) -> Response:
    """GET .../brokers/-/configs: the dynamic options of every broker."""
    shapes = await shapes_of(call)
    rows = []
    for node in (await describe_cluster(call)).brokers:
        for entry in await call.services.kafka.configs(ConfigResource(ConfigKind.BROKER, str(node.id))):
            if entry.source in BROKERS_OWN:
                path, names = ("brokers", node.id, "configs"), (("broker", node.id),)
                rows.append(config_row(shapes, "KafkaBrokerConfig", path, names, entry, broker_id=node.id))
    return collection("KafkaBrokerConfigList", shapes.url("brokers", "-", "configs"), rows)


BASE: Final = "/v3/clusters/{cluster}"
ROUTES: Final[tuple[tuple[str, str, Work], ...]] = (
    ("GET", "/v3/clusters", list_clusters),
    ("GET", BASE, get_cluster),
    ("GET", f"{BASE}/brokers", list_brokers),
    ("GET", f"{BASE}/brokers/-/configs", all_broker_configs),
    ("GET", f"{BASE}/brokers/{{broker}}", get_broker),
    ("GET", f"{BASE}/brokers/{{broker}}/configs", BROKER_OPTIONS.list),
    ("POST", f"{BASE}/brokers/{{broker}}/configs:alter", BROKER_OPTIONS.alter),
    ("GET", f"{BASE}/brokers/{{broker}}/configs/{{name}}", BROKER_OPTIONS.get),
    ("PUT", f"{BASE}/brokers/{{broker}}/configs/{{name}}", BROKER_OPTIONS.put),
    ("DELETE", f"{BASE}/brokers/{{broker}}/configs/{{name}}", BROKER_OPTIONS.delete),
    ("GET", f"{BASE}/broker-configs", CLUSTER_OPTIONS.list),
    ("POST", f"{BASE}/broker-configs:alter", CLUSTER_OPTIONS.alter),
    ("GET", f"{BASE}/broker-configs/{{name}}", CLUSTER_OPTIONS.get),
    ("PUT", f"{BASE}/broker-configs/{{name}}", CLUSTER_OPTIONS.put),
    ("DELETE", f"{BASE}/broker-configs/{{name}}", CLUSTER_OPTIONS.delete),
    ("GET", f"{BASE}/topics/{{topic}}/configs", TOPIC_OPTIONS.list),
    ("POST", f"{BASE}/topics/{{topic}}/configs:alter", TOPIC_OPTIONS.alter),
    ("GET", f"{BASE}/topics/{{topic}}/configs/{{name}}", TOPIC_OPTIONS.get),
    ("PUT", f"{BASE}/topics/{{topic}}/configs/{{name}}", TOPIC_OPTIONS.put),
    ("DELETE", f"{BASE}/topics/{{topic}}/configs/{{name}}", TOPIC_OPTIONS.delete),
)
