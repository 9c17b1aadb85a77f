"""Whose log dirs these are: the cluster and the broker that their meta.properties name."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.storage.dirs.log_dir import LogDir
from barnabas.storage.errors import WrongLogDir


def require_one_owner(dirs: Iterable[LogDir]) -> None:
    """Raises WrongLogDir if usable dirs name different clusters or brokers."""
    metas = [(row.path, row.meta) for row in dirs if row.offline is None and row.meta is not None]
    for path, meta in metas[1:]:
        first_path, first = metas[0]
        for name, here, there in (
            ("cluster.id", meta.cluster_id, first.cluster_id),
            ("node.id", meta.node_id, first.node_id),
        ):
            if here is not None and there is not None and here != there:
                raise WrongLogDir(f"{path} has {name} {here} where {first_path} has {there}")


def cluster_id_in(dirs: Iterable[LogDir]) -> str | None:
    """The cluster id stored in the dirs; None if they are new."""
    return next((row.meta.cluster_id for row in dirs if row.meta and row.meta.cluster_id), None)


def node_id_in(dirs: Iterable[LogDir]) -> int | None:
    """The node id stored in the dirs; None if they are new."""
    return next((row.meta.node_id for row in dirs if row.meta and row.meta.node_id is not None), None)
