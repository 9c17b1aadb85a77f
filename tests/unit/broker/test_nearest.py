"""To which replica the leader sends a consumer (KIP-392)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from barnabas.broker.api.nearest import nearest
from barnabas.broker.partitions.fetching import Prefer
from barnabas.config.loader import load
from barnabas.cores.replication import InSyncReplicas
from barnabas.records.units import Offset

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def chosen(rack: str, offset: int, *, selector: str = RACK_AWARE, is_leader: bool = True) -> int | None:
    """Broker 1 in rack a leads; 2 and 3 in rack b are in sync up to 10 and 20; 4 in rack c is not in sync."""
    racks = {1: "a", 2: "b", 3: "b", 4: "c"}
    services = SimpleNamespace(
        config=load(None, {"node.id": "1", "log.dirs": "/nowhere", "replica.selector.class": selector}),
        image=SimpleNamespace(brokers={node: SimpleNamespace(rack=rack) for node, rack in racks.items()}),
        controller=SimpleNamespace(node_id=1),
    )
    prefer: Prefer | None = nearest(cast("Any", services), rack)
    if prefer is None:
        return None
    replicas = InSyncReplicas(1, (1, 2, 3))
    for node, end in ((2, 10), (3, 20), (4, 30)):
        replicas.note_fetch(node, Offset(end), Offset(30), 0)
    partition = SimpleNamespace(is_leader=is_leader, offline=None, in_sync_with=replicas.in_sync_with)
    return prefer(cast("Any", partition), cast("Any", SimpleNamespace(fetch_offset=offset)))


def test_a_consumer_is_sent_to_the_follower_in_its_rack_that_has_most() -> None:
    assert chosen("b", 5) == 3
    assert chosen("b", 20) == 3


def test_it_stays_where_no_replica_there_has_what_it_wants() -> None:
    assert chosen("b", 21) == -1
    assert chosen("c", 5) == -1, "not in sync"
    assert chosen("a", 5) == -1, "the leader is in its rack"
    assert chosen("elsewhere", 5) == -1
    assert chosen("b", 5, is_leader=False) == -1, "only leaders know"


def test_nobody_is_sent_on_without_the_selector_or_without_a_rack() -> None:
    assert chosen("b", 5, selector="org.apache.kafka.common.replica.LeaderSelector") is None
    assert chosen("", 5) is None
