"""Three brokers over one ZooKeeper, and what befalls them, as confluent-kafka's clients see it.

One cluster for the whole module: each test leaves three live brokers behind, all in sync.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from kafka import TopicPartition as KafkaPartition
from kafka.admin import KafkaAdminClient
from kazoo.client import KazooClient

from barnabas.client.errors import ClientError
from barnabas.client.options import ClientOptions, parse_bootstrap
from barnabas.client.tables.table import TopicTable
from barnabas.client.tables.topic import CompactedTopic
from barnabas.records.partitioner import partition_for_name
from barnabas.wire.errors import ErrorCode
from barnabas.wire.header import encode_request
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from tests.support.cluster import Cluster, until
from tests.support.raw import Raw
from tests.support.tables import Numbers, eventually
from tests.support.zookeeper import ZooKeeperServer

ALL = [1, 2, 3]
RACKS = {1: "a", 2: "b", 3: "c"}


@pytest.fixture(scope="module")
def cluster(zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    brokers = Cluster(
        tmp_path_factory.mktemp("cluster"),
        zookeeper_server,
        chroot="/replication/one",
        racks=RACKS,
        options={"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"},
    )
    try:
        yield brokers.start()
    finally:
        brokers.close()


def create(cluster: Cluster, name: str, partitions: int = 1, **configs: str) -> None:
    options = {key.replace("_", "."): value for key, value in configs.items()}
    topic = NewTopic(name, partitions, 3, config={"min.insync.replicas": "2", **options})
    admin = cluster.admin()
    admin.create_topics([topic])[name].result(60)
    cluster.until_in_sync(name, ALL)


class Load:
    """An idempotent producer with acks=all that goes on through whatever happens."""

    def __init__(self, cluster: Cluster, topic: str, **config: object) -> None:
        self.acknowledged: list[bytes] = []
        self.errors: list[KafkaError] = []
        self._topic = topic
        self._sent = 0
        self._ends = threading.Event()
        settings = {
            "bootstrap.servers": cluster.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 2,
            **cluster.client,
        }
        self._producer = Producer({**settings, **config})
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        assert not self.errors, self.errors[:3]

    def _run(self) -> None:
        while not self._ends.is_set():
            self._producer.produce(self._topic, str(self._sent).encode(), on_delivery=self._delivered)
            self._sent += 1
            self._producer.poll(0)
            time.sleep(0.001)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.acknowledged.append(message.value() or b"")

    def until_more(self, count: int = 50) -> None:
        """Wait until so many more records have been acknowledged."""
        wanted = len(self.acknowledged) + count
        until(lambda: len(self.acknowledged) >= wanted, f"{count} more records are acknowledged")


def read(cluster: Cluster, topic: str, partitions: int = 1) -> list[bytes]:
    """All values of a topic, to its present end."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused", **cluster.client})
    places = [TopicPartition(topic, index, 0) for index in range(partitions)]
    # A broker may hear of a new topic a little later than the one that was asked whether it is there.
    ends = until(
        lambda: {
            index: consumer.get_watermark_offsets(places[index], timeout=30)[1] for index in range(partitions)
        },
        f"{topic} has ends",
    )
    consumer.assign(places)
    values: list[bytes] = []
    deadline = time.monotonic() + 120
    try:
        while any(place.offset < ends[place.partition] for place in consumer.position(places)):
            assert time.monotonic() < deadline, (
                f"{len(values)} records read, up to {consumer.position(places)}"
            )
            for message in consumer.consume(1_000, 0.5):
                assert message.error() is None, message.error()
                values.append(message.value() or b"")
            places = [
                place if place.offset >= 0 else TopicPartition(topic, place.partition, 0)
                for place in consumer.position(places)
            ]
            if all(ends[place.partition] == 0 for place in places):
                break
    finally:
        consumer.close()
    return values


def stored(cluster: Cluster, topic: str, partition: int = 0) -> dict[int, bytes]:
    """The bytes of a partition's log on each broker."""
    folders = {i: broker.data_dir / f"{topic}-{partition}" for i, broker in cluster.brokers.items()}
    return {
        broker: b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
        for broker, folder in folders.items()
    }


def until_equal(cluster: Cluster, topic: str, partition: int = 0) -> None:
    until(
        lambda: len(set(stored(cluster, topic, partition).values())) == 1,
        f"the logs of {topic}-{partition} are the same on all brokers",
    )


def test_the_tree_says_what_tools_of_its_time_expect(cluster: Cluster) -> None:
    create(cluster, "layout", 3)
    tree = KazooClient(cluster.brokers[1].options["zookeeper.connect"])
    tree.start()
    try:
        state = json.loads(tree.get("/brokers/topics/layout/partitions/0/state")[0])
        assert list(state) == ["controller_epoch", "leader", "version", "leader_epoch", "isr"]
        assert (state["leader"], sorted(state["isr"]), state["leader_epoch"]) == (
            cluster.leader("layout"), ALL, 0
        )  # fmt: skip
        assert json.loads(tree.get("/brokers/ids/2")[0])["port"] == cluster.brokers[2].port
        assert json.loads(tree.get("/controller")[0])["brokerid"] in ALL
        assert sorted(tree.get_children("/brokers/ids")) == ["1", "2", "3"]
    finally:
        tree.stop()
        tree.close()
    leaders = {partition.leader for partition in cluster.topic("layout").partitions.values()}
    assert leaders == {1, 2, 3}, "leaders go round the brokers"


def test_nothing_acknowledged_is_lost_with_a_killed_leader(cluster: Cluster) -> None:
    """The killed broker comes back, catches up, and its log is the others' to the byte."""
    create(cluster, "killed", 2)
    with Load(cluster, "killed") as load:
        load.until_more()
        leader = cluster.leader("killed")
        cluster.brokers[leader].kill()
        load.until_more()
        cluster.until_in_sync("killed", [broker for broker in ALL if broker != leader])
        assert cluster.leader("killed") != leader
        cluster.start_again(leader)
        cluster.until_in_sync("killed", ALL)
        load.until_more()
    values = read(cluster, "killed", 2)
    assert sorted(values) == sorted(load.acknowledged)
    for index in range(2):
        until_equal(cluster, "killed", index)


def test_a_stop_hands_leadership_over_before_it_closes(cluster: Cluster) -> None:
    """Controlled shutdown: the others lead and are in sync at once, not after the end of a session."""
    create(cluster, "stopped", 3)
    with Load(cluster, "stopped") as load:
        load.until_more()
        others = [broker for broker in ALL if broker != 1]
        assert cluster.brokers[1].stop() == 0
        for partition in cluster.topic("stopped").partitions.values():
            assert partition.leader in others
            assert sorted(partition.isrs) == others
        load.until_more()
        cluster.start_again(1)
        cluster.until_in_sync("stopped", ALL)
    assert sorted(read(cluster, "stopped", 3)) == sorted(load.acknowledged)


def test_too_few_replicas_in_sync_take_nothing_with_acks_all(cluster: Cluster) -> None:
    create(cluster, "few")
    leader = cluster.leader("few")
    for broker in ALL:
        if broker != leader:
            cluster.brokers[broker].kill()
    cluster.until_in_sync("few", [leader])
    refused: list[KafkaError | None] = []
    producer = Producer(
        {"bootstrap.servers": cluster.brokers[leader].bootstrap, "acks": "all", "message.timeout.ms": 3000}
    )
    producer.produce("few", b"refused", on_delivery=lambda error, _: refused.append(error))
    producer.flush(60)
    assert [error is not None for error in refused] == [True]
    one = Producer({"bootstrap.servers": cluster.brokers[leader].bootstrap, "acks": 1})
    taken: list[KafkaError | None] = []
    one.produce("few", b"taken by the leader alone", on_delivery=lambda error, _: taken.append(error))
    one.flush(60)
    assert taken == [None]
    for broker in ALL:
        if broker != leader:
            cluster.start_again(broker)
    cluster.until_in_sync("few", ALL)
    assert read(cluster, "few") == [b"taken by the leader alone"]
    # More than there are replicas: nothing is ever taken with acks=all, and the topic can be mended.
    admin = cluster.admin()
    resource = ConfigResource(ConfigResource.Type.TOPIC, "few")
    resource.add_incremental_config(
        ConfigEntry("min.insync.replicas", "4", incremental_operation=AlterConfigOpType.SET)
    )
    admin.incremental_alter_configs([resource])[resource].result(60)
    producer.produce("few", b"refused", on_delivery=lambda error, _: refused.append(error))
    producer.flush(60)
    assert [error is not None for error in refused] == [True, True]


def test_a_consumer_reads_from_the_replica_in_its_rack(cluster: Cluster) -> None:
    """As librdkafka's own statistics tell it."""
    create(cluster, "near")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    leader = cluster.leader("near")
    follower = next(broker for broker in ALL if broker != leader)
    read_from: list[int] = []

    def note(statistics: str) -> None:
        topic = json.loads(statistics)["topics"].get("near", {"partitions": {}})
        read_from.extend(row["broker"] for number, row in topic["partitions"].items() if number == "0")

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap, "group.id": "near", "client.rack": RACKS[follower],
            "statistics.interval.ms": 100, "stats_cb": note,
        }
    )  # fmt: skip
    consumer.assign([TopicPartition("near", 0, 0)])
    seen: list[bytes | None] = []

    def reads_from_the_follower() -> bool:
        producer.produce("near", b"more")
        producer.flush(10)
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            seen.append(message.value())
        return bool(read_from) and read_from[-1] == follower

    try:
        until(reads_from_the_follower, f"broker {follower} is read from, which does not lead")
        count = len(seen)
        until(lambda: reads_from_the_follower() and len(seen) > count + 5, "records come from there")
        assert cluster.leader("near") == leader
    finally:
        consumer.close()


def test_groups_and_transactions_go_on_without_the_broker_that_kept_them(cluster: Cluster) -> None:
    """Read, process, write in transactions; the broker that leads the offsets' partition is killed in between."""
    create(cluster, "source", 2)
    create(cluster, "target", 2)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    wanted = [str(number).encode() for number in range(200)]
    for value in wanted:
        producer.produce("source", value)
    assert producer.flush(60) == 0
    reader = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap, "group.id": "moved", "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "max.poll.interval.ms": 300_000, "session.timeout.ms": 45_000,
        }
    )  # fmt: skip
    reader.subscribe(["source"])
    # Once the broker that librdkafka knew as the group's coordinator is gone from the metadata, it asks for another only
    # when one of its connections changes, and heeds no time-out there (its issues 5511 and 5456): idle ones must end.
    writer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": "moved",
            "connections.max.idle.ms": 5_000,
        }
    )
    writer.init_transactions(60)
    done, killed = 0, 0
    deadline = time.monotonic() + 180
    while done < len(wanted):
        assert time.monotonic() < deadline, f"{done} records"
        batch = [message for message in reader.consume(40, 1.0) if message.error() is None]
        if not batch:
            continue
        writer.begin_transaction()
        try:
            for message in batch:
                writer.produce("target", message.value())
            writer.send_offsets_to_transaction(
                reader.position(reader.assignment()), reader.consumer_group_metadata(), 60
            )
            if not killed:
                writer.flush(60)
                killed = cluster.leader("__consumer_offsets", 0)
                cluster.brokers[killed].kill()
            writer.commit_transaction(60)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            writer.abort_transaction(60)
            committed = reader.committed(reader.assignment(), timeout=60)
            for place in committed:
                reader.seek(TopicPartition(place.topic, place.partition, max(place.offset, 0)))
            continue
        done += len(batch)
    reader.close()
    cluster.start_again(killed)
    for topic in ("__consumer_offsets", "__transaction_state", "target"):
        cluster.until_in_sync(topic, ALL)
    assert sorted(read(cluster, "target", 2)) == sorted(wanted)


def throttle(cluster: Cluster, topic: str, rate: int | None) -> None:
    """Slow the replication of a topic down; None: not any more."""
    kind = AlterConfigOpType.DELETE if rate is None else AlterConfigOpType.SET
    options = {("topic", topic): ("leader.replication.throttled.replicas", "*")}
    if rate is not None:
        options |= {("broker", str(node)): ("leader.replication.throttled.rate", str(rate)) for node in ALL}
    admin = cluster.admin()
    for (what, name), (option, value) in options.items():
        entry = ConfigEntry(option, value, incremental_operation=kind)
        resource = ConfigResource(what, name, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(30)


def test_replicas_move_under_load_and_through_the_loss_of_the_controller(cluster: Cluster) -> None:
    """kafka-python's client moves a partition off its leader, which is the controller as well and dies half-way.

    The throttle keeps the move from ending before that.
    """
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    try:
        controller = int(admin.describe_cluster()["controller_id"])
        staying, coming = (broker for broker in ALL if broker != controller)
        replicas, configs = [[controller, staying]], {"file.delete.delay.ms": "100"}
        topics = cluster.admin()  # it must outlive its futures
        new_topic = NewTopic("moved", 1, replica_assignment=replicas, config=configs)
        topics.create_topics([new_topic])["moved"].result(60)
        cluster.until_in_sync("moved", sorted(replicas[0]))
        first = [str(number).encode() + b"." * 10_000 for number in range(300)]  # more than one fetch carries
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        for value in first:
            producer.produce("moved", value)
        assert producer.flush(60) == 0
        throttle(cluster, "moved", 1)
        where = KafkaPartition("moved", 0)
        with Load(cluster, "moved") as load:
            load.until_more()
            assert admin.alter_partition_reassignments({where: [coming, staying]}) == {where: None}
            load.until_more()
            moving = admin.list_partition_reassignments()[where]
            assert moving["replicas"] == [coming, staying, controller]
            assert (moving["adding_replicas"], moving["removing_replicas"]) == ([coming], [controller])
            assert coming not in cluster.in_sync("moved"), "the throttle holds it back"
            cluster.brokers[controller].kill()
            until(lambda: cluster.leader("moved") == staying, "the other replica that is in sync leads")
            load.until_more()
            throttle(cluster, "moved", None)
            cluster.until_in_sync("moved", sorted([staying, coming]))
            until(
                lambda: list(cluster.topic("moved").partitions[0].replicas) == [coming, staying],
                "the next controller ends the move",
            )
            load.until_more()
            cluster.start_again(controller)
        admin.close()  # it does not look for another controller by itself
        admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
        assert admin.list_partition_reassignments() == {}
        assert sorted(read(cluster, "moved")) == sorted([*first, *load.acknowledged])
        assert admin.alter_partition_reassignments({where: [controller, staying]}) == {where: None}
        cluster.until_in_sync("moved", sorted([controller, staying]))
        until(
            lambda: not cluster.brokers[coming].data_dir.joinpath("moved-0").exists(),
            "the broker that has no replica any more has deleted its log",
        )
        assert sorted(read(cluster, "moved")) == sorted([*first, *load.acknowledged])
    finally:
        admin.close()


def test_a_group_coordinator_that_stood_still_answers_no_old_offsets(cluster: Cluster) -> None:
    """Requests wait in its sockets when it goes on, from clients that have not heard of the next coordinator."""
    group, place = "stood-still", partition_for_name("stood-still", 5)
    create(cluster, "read-on")

    def commit(offset: int, brokers: list[int]) -> None:
        addresses = ",".join(cluster.brokers[broker].bootstrap for broker in brokers)
        consumer = Consumer({"bootstrap.servers": addresses, "group.id": group})
        try:
            consumer.commit(offsets=[TopicPartition("read-on", 0, offset)], asynchronous=False)
        finally:
            consumer.close()

    until(lambda: commit(5, ALL) is None, "an offset is committed")
    cluster.until_in_sync("__consumer_offsets", ALL)
    first = cluster.leader("__consumer_offsets", place)
    others = [broker for broker in ALL if broker != first]
    connections = [Raw(cluster.brokers[first]) for _ in range(20)]
    os.kill(cluster.brokers[first].pid, signal.SIGSTOP)
    try:
        until(lambda: cluster.leader("__consumer_offsets", place) in others, "another broker takes over")
        commit(7, others)
        topic = OffsetFetchRequestTopic(name="read-on", partition_indexes=[0])
        for connection in connections:
            connection.send(encode_request(OffsetFetchRequest(group_id=group, topics=[topic]), 5, 7, "raw"))
    finally:
        os.kill(cluster.brokers[first].pid, signal.SIGCONT)
    for connection in connections:
        answer = OffsetFetchResponse.decode(connection.frame(), 5, 4)
        assert isinstance(answer, OffsetFetchResponse)
        if answer.error_code != ErrorCode.NOT_COORDINATOR:
            assert answer.topics[0].partitions[0].committed_offset == 7
        connection.sock.close()
    cluster.until_in_sync("__consumer_offsets", ALL)
    cluster.until_in_sync("read-on", ALL)


def test_deleted_records_stay_deleted_whoever_leads(cluster: Cluster) -> None:
    """Confirmed once all live replicas have deleted them; before that, the client is told that it took too long."""
    create(cluster, "shorter")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(100):
        producer.produce("shorter", str(number).encode())
    assert producer.flush(60) == 0
    leader = cluster.leader("shorter")
    follower = next(broker for broker in ALL if broker != leader)
    rows = [DeleteRecordsPartition(partition_index=0, offset=30)]
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="shorter", partitions=rows)], timeout_ms=500
    )
    connection = Raw(cluster.brokers[leader])
    os.kill(cluster.brokers[follower].pid, signal.SIGSTOP)
    try:
        answer = connection.ask(request, DeleteRecordsResponse, 2)
    finally:
        os.kill(cluster.brokers[follower].pid, signal.SIGCONT)
        connection.sock.close()
    assert isinstance(answer, DeleteRecordsResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    cluster.until_in_sync("shorter", ALL)
    asked = TopicPartition("shorter", 0, 70)
    admin = cluster.admin()
    assert admin.delete_records([asked])[asked].result(60).low_watermark == 70
    cluster.brokers[leader].kill()
    until(lambda: cluster.leader("shorter") not in (leader, -1), "another broker leads")
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused", **cluster.client})
    try:
        assert consumer.get_watermark_offsets(TopicPartition("shorter", 0), timeout=30) == (70, 100)
    finally:
        consumer.close()
    cluster.start_again(leader)
    cluster.until_in_sync("shorter", ALL)


def test_a_table_is_read_again_after_an_unclean_election(cluster: Cluster) -> None:
    """The new leader has not got the last records. Others are written in their place, so that its log is no shorter."""
    options = {"cleanup.policy": "compact", "unclean.leader.election.enable": "true"}
    topic = NewTopic("parting", 1, replica_assignment=[[1, 2]], config=options)
    admin = cluster.admin()
    admin.create_topics([topic])["parting"].result(60)
    cluster.until_in_sync("parting", [1, 2])
    client = ClientOptions(parse_bootstrap(cluster.bootstrap), deadline_s=60)

    async def elect() -> None:
        table = TopicTable(client, CompactedTopic("parting", "numbers"), Numbers(), read_back_s=60)
        await table.start()
        try:
            await table.put("a", 1)
            cluster.brokers[2].kill()
            until(lambda: cluster.in_sync("parting") == [1], "one replica is in sync")
            await table.write({"b": 2, "c": 3})
            cluster.brokers[1].kill()
            cluster.start_again(2)
            until(lambda: cluster.leader("parting") == 2, "the other one leads")
            with suppress(ClientError):  # reading has begun again meanwhile
                await table.write({"d": 4, "e": 5, "f": 6})
            await eventually(lambda: table.snapshot() == {"a": 1, "d": 4, "e": 5, "f": 6})
        finally:
            await table.stop()

    asyncio.run(elect())
    cluster.start_again(1)
    cluster.until_in_sync("parting", [1, 2])


def test_a_topic_is_deleted_everywhere(cluster: Cluster) -> None:
    create(cluster, "doomed", 2, file_delete_delay_ms="100")
    admin = cluster.admin()
    admin.delete_topics(["doomed"])["doomed"].result(60)
    until(
        lambda: (
            not [path for broker in cluster.brokers.values() for path in broker.data_dir.glob("doomed-*")]
        ),
        "no broker has a log of the deleted topic",
    )
    create(cluster, "doomed")
    assert read(cluster, "doomed") == []
