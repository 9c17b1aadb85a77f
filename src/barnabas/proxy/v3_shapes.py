"""API v3: the JSON that its answers have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from starlette.responses import Response

from barnabas.admin import Config, ConfigSource
from barnabas.http.errors import HttpError
from barnabas.proxy.call import ProxyCall, answer, quoted


class Shapes:
    """Writes the resources of one cluster as JSON, with URLs by which the client reaches this service."""

    def __init__(self, base_url: str, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.root = f"{base_url}/v3/clusters"
        self.cluster = f"{self.root}/{quoted(cluster_id)}"

    def url(self, *parts: Any) -> str:
        """A URL below the cluster's; `parts` are percent-encoded."""
        return "/".join((self.cluster, *(quoted(part) for part in parts)))

    def related(self, *parts: Any) -> dict[str, str]:
        """A link to another resource."""
        return {"related": self.url(*parts)}

    def name(self, *pairs: tuple[str, Any]) -> str:
        """A resource's own name: crn:///kafka=.../topic=..."""
        inside = "".join(f"/{kind}={value}" if value is not None else f"/{kind}" for kind, value in pairs)
        return f"crn:///kafka={self.cluster_id}{inside}"

    def resource(
        self, kind: str, path: Iterable[Any], names: Iterable[tuple[str, Any]], fields: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The JSON of one resource. path: of its URL, names: of its resource name, both below the cluster's."""
        metadata = {"self": self.url(*path), "resource_name": self.name(*names)}
        return {"kind": kind, "metadata": metadata, "cluster_id": self.cluster_id, **fields}


def collection(kind: str, url: str, rows: list[dict[str, Any]]) -> Response:
    """An answer with a list of resources. url: of the list."""
    return answer({"kind": kind, "metadata": {"self": url, "next": None}, "data": rows})


async def shapes_of(call: ProxyCall) -> Shapes:
    """The Shapes of the cluster in the path. Raises HttpError 404 if this service is connected to another one."""
    own_id = await call.services.kafka.cluster_id()
    cluster_id = call.part("cluster")
    if cluster_id != own_id:
        raise HttpError(404, f"Cluster {cluster_id[:100]} cannot be found.")
    return Shapes(call.base_url(), own_id)


def config_row(
    shapes: Shapes,
    kind: str,
    path: tuple[Any, ...],
    names: tuple[tuple[str, Any], ...],
    entry: Config,
    **more: Any,
) -> dict[str, Any]:
    """The JSON of one option. path, names: of its owner."""
    fields = {
        **more,
        "name": entry.name,
        "value": None if entry.is_sensitive else entry.value,
        "is_default": entry.source is ConfigSource.DEFAULT_CONFIG,
        "is_read_only": entry.is_read_only,
        "is_sensitive": entry.is_sensitive,
        "source": entry.source.name,
        "synonyms": [
            {"name": synonym.name, "value": synonym.value, "source": synonym.source.name}
            for synonym in entry.synonyms
        ],
    }
    return shapes.resource(kind, (*path, entry.name), (*names, ("config", entry.name)), fields)
