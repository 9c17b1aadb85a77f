"""`barnabas.admin` against a real broker, with librdkafka's admin client as witness of what was done.

`BARNABAS_TEST_BOOTSTRAP` runs them against another broker: they pass against Apache Kafka 4.3.1 as well.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import ConfigResource as TheirResource

from barnabas.admin import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    TO_THE_END,
    Admin,
    AsyncAdmin,
    ChangeKind,
    CommittedOffset,
    ConfigChange,
    ConfigKind,
    ConfigResource,
    ConfigSource,
    Election,
    Match,
    MemberKey,
    NewTopic,
    Offset,
    QuotaEntity,
    QuotaFilter,
    Replica,
    ResourceError,
    TopicPartition,
    back_to_default,
    set_to,
)
from barnabas.client.errors import BrokerUnavailable, UnsupportedByBroker
from barnabas.client.options import ClientOptions
from barnabas.wire.errors import ErrorCode
from tests.support.admin import admin as their_admin
from tests.support.cluster import until


def fresh(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap) as admin:
        yield admin


@pytest.fixture
def topic(admin: Admin) -> str:
    """A topic of three partitions without records."""
    name = fresh("library")
    admin.topics.create([NewTopic(name, partitions=3, replication=1)]).require()
    return name


def produce(bootstrap: str, topic: str, partition: int, times_ms: list[int]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for time_ms in times_ms:
        producer.produce(topic, b"x", partition=partition, timestamp=time_ms)
        assert producer.flush(30) == 0


def consumer_in(bootstrap: str, group: str, topic: str, **options: str) -> Consumer:
    """A consumer that has its partitions."""
    settings = {name.replace("_", "."): value for name, value in options.items()}
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", **settings}
    )
    consumer.subscribe([topic])
    for _ in range(300):
        consumer.poll(0.1)
        if consumer.assignment():
            return consumer
    raise AssertionError("the consumer got no partitions")


# --- topics -------------------------------------------------------------------------------------------


def test_topics_are_created_described_and_deleted(admin: Admin, bootstrap: str) -> None:
    name = fresh("made")
    created = admin.topics.create([NewTopic(name, partitions=2, configs={"retention.ms": "60000"})])
    assert created[name].partitions == 2
    assert created[name].configs is not None
    assert created[name].configs["retention.ms"] == "60000"
    theirs = their_admin(bootstrap).list_topics(timeout=30).topics[name]
    assert sorted(theirs.partitions) == [0, 1]
    described = admin.topics.describe([name])[name]
    assert described.id == created[name].id
    assert [part.number for part in described.partitions] == [0, 1]
    assert all(part.leader >= 0 and part.leader in part.in_sync for part in described.partitions)
    assert admin.topics.list()[name] == described
    admin.topics.delete([name]).require()
    with pytest.raises(ResourceError) as refused:
        _ = admin.topics.describe([name])[name]
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_fails_does_not_hide_the_others(admin: Admin, topic: str) -> None:
    name = fresh("good")
    results = admin.topics.create([NewTopic(topic), NewTopic("not a name"), NewTopic(name, 1, 1)])
    assert list(results.done) == [name]
    assert list(results.failed) == [topic, "not a name"]
    codes = [getattr(error, "code", None) for error in results.failed.values()]
    assert codes == [ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_TOPIC_EXCEPTION]
    text = str(results.failed[topic])
    assert text.startswith(f"cannot create topic {topic}: ")
    assert "delete it first" in text
    assert results.except_for(ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_TOPIC_EXCEPTION).require()
    with pytest.raises(ResourceError, match="already exists"):
        results.require()


def test_nothing_is_created_to_validate(admin: Admin) -> None:
    name = fresh("checked")
    admin.topics.create([NewTopic(name, 1, 1)], validate_only=True).require()
    assert name not in admin.topics.list()


def test_a_topic_is_deleted_by_its_id(admin: Admin, topic: str) -> None:
    topic_id = admin.topics.describe([topic])[topic].id
    assert topic_id is not None
    unknown = uuid.uuid4()
    results = admin.topics.delete([topic_id, unknown])
    assert list(results.done) == [topic_id]
    assert list(results.failed) == [unknown]


def test_partitions_are_added(admin: Admin, topic: str) -> None:
    results = admin.topics.add_partitions({topic: 5, "not-there": 2})
    assert list(results.failed) == ["not-there"]
    with pytest.raises(ResourceError, match="can only grow"):
        admin.topics.add_partitions({topic: 5}).require()
    assert len(admin.topics.describe([topic])[topic].partitions) == 5


def test_replicas_of_a_new_topic_are_named(admin: Admin) -> None:
    node = admin.cluster.describe().brokers[0].id
    name = fresh("placed")
    admin.topics.create([NewTopic(name, replicas=[[node], [node]])]).require()
    assert [part.replicas for part in admin.topics.describe([name])[name].partitions] == [(node,), (node,)]


# --- configs ------------------------------------------------------------------------------------------


def test_options_are_changed_and_told_with_their_source(admin: Admin, topic: str, bootstrap: str) -> None:
    resource = ConfigResource(ConfigKind.TOPIC, topic)
    changes = [
        *set_to({"retention.ms": "61000", "cleanup.policy": "compact"}),
        *back_to_default(["segment.ms"]),
    ]
    admin.configs.alter({resource: changes}).require()
    append = [ConfigChange("cleanup.policy", ChangeKind.APPEND, "delete")]
    admin.configs.alter({resource: append}).require()
    their_resource = TheirResource(TheirResource.Type.TOPIC, topic)
    witness = their_admin(bootstrap)
    theirs = witness.describe_configs([their_resource])[their_resource].result(30)
    assert theirs["retention.ms"].value == "61000"
    assert theirs["cleanup.policy"].value == "compact,delete"
    options = admin.configs.describe(
        [resource], names=["retention.ms", "segment.ms"], synonyms=True, documentation=True
    )[resource]
    assert set(options) == {"retention.ms", "segment.ms"}
    changed = options["retention.ms"]
    assert changed.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert not changed.is_default
    assert changed.synonyms[0].value == "61000"
    assert changed.documentation
    assert options["segment.ms"].is_default


def test_options_are_replaced(admin: Admin, topic: str) -> None:
    resource = ConfigResource(ConfigKind.TOPIC, topic)
    admin.configs.alter({resource: set_to({"retention.ms": "61000"})}).require()
    admin.configs.replace({resource: {"segment.ms": "70000"}}).require()
    options = admin.configs.describe([resource])[resource]
    assert options["retention.ms"].is_default
    assert options["segment.ms"].value == "70000"


def test_a_bad_option_names_its_resource(admin: Admin, topic: str) -> None:
    good, bad = ConfigResource(ConfigKind.TOPIC, topic), ConfigResource(ConfigKind.TOPIC, "not-there")
    results = admin.configs.alter(
        {good: set_to({"retention.ms": "many"}), bad: set_to({"retention.ms": "60000"})}
    )
    assert results.done == {}
    assert f"options of topic {topic}" in str(results.failed[good])
    assert "options of topic not-there" in str(results.failed[bad])


def test_options_of_a_broker_come_from_that_broker(admin: Admin) -> None:
    node = admin.cluster.describe().brokers[0].id
    mine, none = ConfigResource(ConfigKind.BROKER, str(node)), ConfigResource(ConfigKind.BROKER, "4711")
    results = admin.configs.describe([mine, none])
    assert "log.retention.ms" in results[mine]
    assert "broker 4711 is not among the live ones" in str(results.failed[none])


def test_resources_with_options_are_listed(admin: Admin, topic: str) -> None:
    assert ConfigResource(ConfigKind.TOPIC, topic) in admin.configs.resources([ConfigKind.TOPIC])


# --- records ------------------------------------------------------------------------------------------


def test_offsets_by_place_and_time(admin: Admin, topic: str, bootstrap: str) -> None:
    produce(bootstrap, topic, 0, [1_700_000_000_000, 1_700_000_005_000, 1_700_000_001_000])
    first, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert admin.records.bounds([first, empty]).require()[first].count == 3
    assert admin.records.offsets({first: LATEST})[first].offset == 3
    assert admin.records.offsets({first: EARLIEST})[first].offset == 0
    offsets = admin.records.offsets({first: 1_700_000_000_001, empty: 1_700_000_000_001})
    assert (offsets[first].offset, offsets[first].timestamp_ms) == (1, 1_700_000_005_000)
    assert offsets[empty].offset is None
    assert admin.records.offsets({first: MAX_TIMESTAMP})[first].offset == 1


def test_a_partition_that_is_not_there_has_no_offsets(admin: Admin, topic: str) -> None:
    results = admin.records.bounds([(topic, 0), (topic, 9), ("not-there", 0)])
    assert list(results.done) == [(topic, 0)]
    assert [str(key) for key in results.failed] == [f"{topic}-9", "not-there-0"]
    assert f"partition {topic}-9" in str(results.failed[TopicPartition(topic, 9)])


def test_records_are_deleted(admin: Admin, topic: str, bootstrap: str) -> None:
    produce(bootstrap, topic, 0, [1, 2, 3])
    produce(bootstrap, topic, 1, [1, 2])
    results = admin.records.delete(
        {TopicPartition(topic, 0): 2, TopicPartition(topic, 1): TO_THE_END, TopicPartition(topic, 2): 5}
    )
    assert results.done == {TopicPartition(topic, 0): 2, TopicPartition(topic, 1): 2}
    assert getattr(results.failed[TopicPartition(topic, 2)], "code", 0) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert admin.records.bounds([(topic, 0)])[TopicPartition(topic, 0)].start == 2


# --- groups -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_a_member(admin: Admin, topic: str, bootstrap: str, protocol: str) -> None:
    group = fresh("group")
    produce(bootstrap, topic, 0, [1, 2])
    consumer = consumer_in(bootstrap, group, topic, group_protocol=protocol, group_instance_id="first")
    try:
        listed = {row.name: row for rows in admin.groups.list().require().values() for row in rows}
        assert listed[group].type.lower() == protocol
        groups = admin.groups.describe([group, "not-there"])
        described = groups[group]
        assert described.type == protocol
        assert described.state == "Stable"
        (member,) = described.members
        assert member.instance == "first"
        assert sorted(member.assigned) == [(topic, 0), (topic, 1), (topic, 2)]
        assert member.subscribed == (topic,)
        assert (member.epoch is None) == (protocol == "classic")
        assert described.coordinator.id in {broker.id for broker in admin.cluster.describe().brokers}
        missing = groups.failed["not-there"]
        assert isinstance(missing, ResourceError)
        assert missing.code == ErrorCode.GROUP_ID_NOT_FOUND
        refused = admin.groups.delete([group]).failed[group]
        assert isinstance(refused, ResourceError)
        assert "stop the group's members first" in str(refused)
        with pytest.raises(ResourceError) as busy:
            admin.groups.alter_offsets(group, {TopicPartition(topic, 0): 1}).require()
        assert busy.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH)
        if protocol == "classic":
            assert admin.groups.remove_members(group).done == {MemberKey("first"): None}
    finally:
        consumer.close()


def test_offsets_of_groups_are_set_read_and_deleted(admin: Admin, topic: str) -> None:
    group, other = fresh("offsets"), fresh("offsets")
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    done = admin.groups.alter_offsets(group, {first: 4, second: CommittedOffset(Offset(7), metadata="note")})
    assert list(done.done) == [first, second]
    offsets = admin.groups.offsets([group, other])
    assert offsets[group][first].offset == 4
    assert offsets[group][second].metadata == "note"
    assert offsets[other] == {}
    assert list(admin.groups.offsets({group: [second, (topic, 2)]})[group]) == [second]
    assert admin.groups.delete_offsets(group, [first]).done == {first: None}
    assert list(admin.groups.offsets([group])[group]) == [second]
    assert admin.groups.delete([group, other]).failed.keys() == {other}


def test_a_group_of_another_type_is_no_share_group(admin: Admin, topic: str) -> None:
    group = fresh("classic")
    admin.groups.alter_offsets(group, {TopicPartition(topic, 0): 1}).require()
    error = admin.share_groups.describe([group]).failed[group]
    assert isinstance(error, ResourceError)
    assert error.code == ErrorCode.GROUP_ID_NOT_FOUND


# --- share groups -------------------------------------------------------------------------------------


def test_start_offsets_of_a_share_group(admin: Admin, topic: str, bootstrap: str) -> None:
    confluent = pytest.importorskip("confluent_kafka")
    if not hasattr(confluent, "ShareConsumer"):
        pytest.skip("this confluent-kafka has no share consumer")
    group = fresh("share")
    options = {"bootstrap.servers": bootstrap, "group.id": group, "share.acknowledgement.mode": "implicit"}
    consumer = confluent.ShareConsumer(options)
    try:
        consumer.subscribe([topic])
        for _ in range(300):
            consumer.poll(0.1)
            described = admin.share_groups.describe([group])
            if described.done and described[group].members and described[group].members[0].assigned:
                break
        (member,) = described[group].members
        assert {part.topic for part in member.assigned} == {topic}
        assert described[group].state == "Stable"
    finally:
        consumer.close()
    produce(bootstrap, topic, 0, [1, 2, 3])
    key = TopicPartition(topic, 0)
    admin.share_groups.alter_offsets(group, {key: 2}).require()
    assert admin.share_groups.offsets([group])[group][key].start == 2
    results = admin.share_groups.delete_offsets(group, [topic])
    assert results.done == {topic: None}
    admin.groups.delete([group]).require()


# --- quotas and users ---------------------------------------------------------------------------------


def test_quotas(admin: Admin) -> None:
    user = fresh("user")
    whole, part = QuotaEntity.of({"user": user}), QuotaEntity.of({"user": user, "client-id": None})
    results = admin.quotas.alter(
        {
            whole: {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.0},
            part: {"request_percentage": 5.0},
            QuotaEntity.of({"user": f"{user}-2"}): {"no_such_limit": 1.0},
        }
    )
    assert list(results.done) == [whole, part]
    (error,) = results.failed.values()
    assert f"quotas of user {user}-2" in str(error)
    exact = [QuotaFilter("user", Match.EXACT, user)]
    limits = {
        whole: {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.0},
        part: {"request_percentage": 5.0},
    }
    until(lambda: admin.quotas.describe(exact) == limits, "the quotas are in force")
    admin.quotas.alter({whole: {"producer_byte_rate": None}}).require()
    left = {whole: {"consumer_byte_rate": 2000.0}}
    until(lambda: admin.quotas.describe(exact, strict=True) == left, "a limit is removed")


# --- replicas and log dirs ----------------------------------------------------------------------------


def test_replicas_and_elections(admin: Admin, topic: str) -> None:
    node = admin.cluster.describe().brokers[0].id
    key, none = TopicPartition(topic, 0), TopicPartition(topic, 7)
    results = admin.replicas.reassign({key: [node], none: [node]})
    assert list(results.done) == [key]
    assert f"partition {none}" in str(results.failed[none])
    cancelled = admin.replicas.reassign({key: None}).failed[key]
    assert isinstance(cancelled, ResourceError)
    assert cancelled.code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert admin.replicas.reassignments() == {}
    elected = admin.replicas.elect([key], election=Election.PREFERRED).failed[key]
    assert isinstance(elected, ResourceError)
    assert elected.code == ErrorCode.ELECTION_NOT_NEEDED
    assert admin.replicas.elect().done == {}


def test_log_dirs(admin: Admin, topic: str, bootstrap: str) -> None:
    produce(bootstrap, topic, 0, [1, 2])
    node = admin.cluster.describe().brokers[0].id
    (log_dir,) = admin.log_dirs.describe(partitions=[(topic, 0)])[node]
    assert log_dir.error is None
    (replica,) = log_dir.replicas
    assert replica.partition == (topic, 0)
    assert replica.size_bytes > 0
    assert not replica.is_future
    key = Replica(topic, 0, node)
    error = admin.log_dirs.move({key: "/not/a/log/dir"}).failed[key]
    assert isinstance(error, ResourceError)
    assert error.code == ErrorCode.LOG_DIR_NOT_FOUND
    assert f"replica {topic}-0 of broker {node}" in str(error)


# --- transactions -------------------------------------------------------------------------------------


def test_a_transaction_is_listed_described_and_fenced(admin: Admin, topic: str, bootstrap: str) -> None:
    name = fresh("txn")
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=1)
    assert producer.flush(30) == 0
    transactions = admin.transactions.describe([name, "not-there"])
    open_one = transactions[name]
    assert open_one.state == "Ongoing"
    assert open_one.partitions == (TopicPartition(topic, 1),)
    assert open_one.start_ms is not None
    missing = transactions.failed["not-there"]
    assert isinstance(missing, ResourceError)
    assert missing.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    listed = admin.transactions.list(producer_ids=[open_one.producer_id]).require()
    assert [row.transactional_id for rows in listed.values() for row in rows] == [name]
    key = TopicPartition(topic, 1)
    (state,) = admin.transactions.producers([key])[key]
    assert state.producer_id == open_one.producer_id
    assert state.transaction_start == 0
    now_ms = state.last_timestamp_ms + 1_000_000
    assert admin.transactions.hanging([key], now_ms=now_ms) == []
    fenced = admin.transactions.fence([name])[name]
    assert (fenced.producer_id, fenced.producer_epoch) != (open_one.producer_id, open_one.producer_epoch)
    ended = admin.transactions.describe([name])[name]
    assert ended.start_ms is None
    assert ended.partitions == ()


# --- the cluster --------------------------------------------------------------------------------------


def test_the_cluster_is_described(admin: Admin, bootstrap: str) -> None:
    theirs = their_admin(bootstrap).list_topics(timeout=30)
    cluster = admin.cluster.describe(rights=True)
    assert cluster.id == theirs.cluster_id
    assert {broker.id: (broker.host, broker.port) for broker in cluster.brokers} == {
        broker.id: (broker.host, broker.port) for broker in theirs.brokers.values()
    }
    assert cluster.rights
    assert admin.cluster.features().features
    (served,) = admin.cluster.api_versions().require().values()
    assert 3 in {row.key for row in served}


def test_features_that_are_not_there(admin: Admin) -> None:
    error = admin.cluster.update_features({"no.such.feature": 1}, validate_only=True).failed[
        "no.such.feature"
    ]
    assert "no.such.feature" in str(error) or isinstance(error, UnsupportedByBroker)  # ours has fixed levels


# --- asynchronous callers, errors of the connection ---------------------------------------------------


def test_many_requests_at_the_same_time(bootstrap: str) -> None:
    names = [fresh("side") for _ in range(20)]

    async def run() -> None:
        async with AsyncAdmin(bootstrap) as admin:
            await asyncio.gather(*(admin.topics.create([NewTopic(name, 1, 1)]) for name in names))
            described, listed, cluster = await asyncio.gather(
                admin.topics.describe(names), admin.topics.list(), admin.cluster.describe()
            )
            assert set(described.done) == set(names)
            assert set(names) <= set(listed)
            assert cluster.brokers
            await admin.topics.delete(names)

    asyncio.run(run())


def test_a_cluster_that_is_away_is_reported_at_once() -> None:
    options = ClientOptions((("127.0.0.1", 1),), contact_timeout_s=0)
    with (
        Admin(options) as admin,
        pytest.raises(BrokerUnavailable, match=r"no broker answers at 127\.0\.0\.1:1"),
    ):
        admin.topics.list()


def test_many_partitions_are_asked_in_batches(admin: Admin) -> None:
    """Offsets, bounds and options of many partitions and topics, more than one request holds."""
    names = [fresh("many") for _ in range(3)]
    admin.topics.create([NewTopic(name, partitions=900, replication=1) for name in names]).require()
    keys = [TopicPartition(name, number) for name in names for number in range(900)]
    assert len(admin.records.bounds(keys).require()) == 2_700
    group = fresh("many")
    admin.groups.alter_offsets(group, dict.fromkeys(keys, 0)).require()
    assert len(admin.groups.offsets([group])[group]) == 2_700
    admin.topics.delete(names).require()
