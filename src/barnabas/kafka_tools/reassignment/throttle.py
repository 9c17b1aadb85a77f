"""The throttles of a reassignment: rates on the brokers, replicas on the topics; removed when it is done."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set as AbstractSet
from typing import Final

from barnabas.admin import Admin
from barnabas.kafka_tools.configs.configs import Entity, change
from barnabas.kafka_tools.reassignment.plan import Plan
from barnabas.kafka_tools.shared.common import live_brokers

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
DIRS_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"


def limit_replication(admin: Admin, current: Plan, wanted: Plan, rate: int) -> None:
    """Throttle the traffic from the brokers that have the partitions to those that receive them. Raises ToolError."""
    leaders: dict[str, list[str]] = defaultdict(list)
    followers: dict[str, list[str]] = defaultdict(list)
    brokers: set[int] = set()
    for key in sorted(wanted):
        before, after = current[key].replicas, wanted[key].replicas
        new = [broker for broker in after if broker not in before]
        leaders[key[0]] += [f"{key[1]}:{broker}" for broker in before]
        followers[key[0]] += [f"{key[1]}:{broker}" for broker in new]
        brokers |= {*before, *after}
    for topic in leaders:
        values = {LEADER_REPLICAS: leaders[topic], FOLLOWER_REPLICAS: followers[topic]}
        change(
            admin,
            Entity("topics", topic),
            {name: ",".join(items) for name, items in values.items() if items},
            [],
        )
    for broker in sorted(brokers):
        change(admin, Entity("brokers", str(broker)), {LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)}, [])


def limit_dirs(admin: Admin, wanted: Plan, rate: int) -> None:
    """Throttle moves between the log dirs of the brokers in the plan. Raises ToolError."""
    for broker in sorted({broker for target in wanted.values() for broker in target.replicas}):
        change(admin, Entity("brokers", str(broker)), {DIRS_RATE: str(rate)}, [])


def clear(admin: Admin, topics: AbstractSet[str]) -> None:
    """Remove every throttle of the brokers and of these topics. Raises ToolError."""
    brokers = live_brokers(admin)
    print(
        f"Clearing broker-level throttles on broker{'s' if len(brokers) > 1 else ''} {','.join(map(str, brokers))}"
    )
    for broker in brokers:
        change(admin, Entity("brokers", str(broker)), {}, [LEADER_RATE, FOLLOWER_RATE, DIRS_RATE])
    print(
        f"Clearing topic-level throttles on topic{'s' if len(topics) > 1 else ''} {','.join(sorted(topics))}"
    )
    for topic in sorted(topics):
        change(admin, Entity("topics", topic), {}, [LEADER_REPLICAS, FOLLOWER_REPLICAS])
