"""`barnabas.admin` over three brokers: each resource is asked of the broker that answers for it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from barnabas.admin import LATEST, Admin, NewTopic, ResourceError, TopicPartition
from barnabas.client.errors import ClientError
from barnabas.client.options import ClientOptions, parse_bootstrap
from barnabas.wire.errors import ErrorCode
from tests.support.cluster import Cluster, until
from tests.support.zookeeper import ZooKeeperServer

ALL = {1, 2, 3}


@pytest.fixture(scope="module")
def cluster(zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    brokers = Cluster(tmp_path_factory.mktemp("admin"), zookeeper_server, chroot="/admin")
    try:
        yield brokers.start()
    finally:
        brokers.close()


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Admin]:
    options = ClientOptions(parse_bootstrap(cluster.bootstrap), deadline_s=60)
    with Admin(options) as admin:
        yield admin


def created(admin: Admin, partitions: int = 6) -> str:
    name = f"admin-{uuid.uuid4().hex[:8]}"
    admin.topics.create([NewTopic(name, partitions, 3)]).require()
    return name


def test_each_broker_answers_for_its_own(admin: Admin) -> None:
    name = created(admin)
    topic = admin.topics.describe([name])[name]
    assert {part.leader for part in topic.partitions} == ALL
    keys = [TopicPartition(name, part.number) for part in topic.partitions]
    assert list(admin.records.offsets(dict.fromkeys(keys, LATEST)).require()) == keys
    assert list(admin.transactions.producers(keys).require()) == keys
    dirs = admin.log_dirs.describe(partitions=keys).require()
    assert set(dirs) == ALL
    assert all(len(log_dir.replicas) == len(keys) for directories in dirs.values() for log_dir in directories)
    groups = [f"{name}-{number}" for number in range(8)]
    for group in groups:
        admin.groups.alter_offsets(group, {keys[0]: 0}).require()
    described = admin.groups.describe(groups).require()
    assert {group.coordinator.id for group in described.values()} == ALL
    listed = admin.groups.list().require()
    assert {row.name: row.coordinator for rows in listed.values() for row in rows if row.name in groups} == {
        name: group.coordinator.id for name, group in described.items()
    }
    assert list(admin.groups.delete(groups).done) == groups


def test_replicas_move_and_preferred_leaders_are_elected(admin: Admin, cluster: Cluster) -> None:
    name = created(admin, 1)
    key = TopicPartition(name, 0)
    first, second, third = admin.topics.describe([name])[name].partitions[0].replicas
    admin.replicas.reassign({key: [second, third, first]}).require()
    until(lambda: key not in admin.replicas.reassignments(), "the replicas have moved")
    assert admin.topics.describe([name])[name].partitions[0].preferred_leader == second
    admin.replicas.elect([key]).except_for(ErrorCode.ELECTION_NOT_NEEDED).require()
    until(
        lambda: admin.topics.describe([name])[name].partitions[0].leader == second,
        "the leader is the preferred",
    )


def test_a_broker_that_is_away_does_not_hide_the_others(admin: Admin, cluster: Cluster) -> None:
    name = created(admin)
    victim = next(number for number in ALL if number != admin.cluster.describe().controller)
    cluster.brokers[victim].kill()
    try:
        until(lambda: len(admin.cluster.describe().brokers) == 2, "the broker's session has ended")
        dirs = admin.log_dirs.describe([1, 2, 3])
        assert set(dirs.done) == ALL - {victim}
        (error,) = dirs.failed.values()
        assert isinstance(error, ClientError)
        assert f"broker {victim} is not among the live ones" in str(error)
        # Leaders that were on the broker are asked where they are now.
        keys = [TopicPartition(name, number) for number in range(6)]
        assert list(admin.records.bounds(keys).require()) == keys
        assert all(part.is_under_replicated for part in admin.topics.describe([name])[name].partitions)
    finally:
        cluster.brokers[victim].start()
        until(lambda: len(admin.cluster.describe().brokers) == 3, "the broker is back")


def test_requests_survive_the_loss_of_the_controller(admin: Admin, cluster: Cluster) -> None:
    victim = admin.cluster.describe().controller
    cluster.brokers[victim].kill()
    try:
        name = f"admin-{uuid.uuid4().hex[:8]}"
        creation = admin.topics.create([NewTopic(name, 3, 1)])
        assert creation.failed == {}
        again = admin.topics.create([NewTopic(name, 3, 1)]).failed[name]
        assert isinstance(again, ResourceError)
        assert again.code == ErrorCode.TOPIC_ALREADY_EXISTS
    finally:
        cluster.brokers[victim].start()
