"""Streams groups: internal topics, statuses, rights, and what the administrator's programs show and change.

The members here send heartbeats as Kafka Streams does; Kafka Streams itself is the witness in tests/soak/test_streams.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.admin import Admin, ConfigKind, ConfigResource, set_to
from barnabas.kafka_tools.main import run
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.streams_group_heartbeat import Endpoint, Subtopology, Topology
from tests.clients.cli_support import Cli
from tests.support.admin import create_topic, set_group_option
from tests.support.process import BrokerProcess
from tests.support.streams_member import StreamsMember, counting

MISSING_SOURCE_TOPICS, MISSING_INTERNAL_TOPICS, ASSIGNMENT_DELAYED = 1, 3, 5


@pytest.fixture
def app(broker: BrokerProcess) -> str:
    """The name of an application whose group assigns at once."""
    name = f"app-{uuid.uuid4().hex[:8]}"
    set_group_option(broker.bootstrap, name, "streams.initial.rebalance.delay.ms", "0")
    set_group_option(broker.bootstrap, name, "streams.assignment.interval.ms", "0")
    return name


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Admin]:
    with Admin(broker.bootstrap) as client:
        yield client


def codes(answer: object) -> list[int]:
    return [status.status_code for status in answer.status]  # type: ignore[attr-defined]


def test_topics_are_made_and_tasks_are_shared(broker: BrokerProcess, app: str, admin: Admin) -> None:
    topology = counting(f"{app}-lines", app)
    ada = StreamsMember(broker, app, topology)
    answer = ada.beat(user_endpoint=Endpoint(host="ada", port=80))
    assert codes(answer) == [MISSING_SOURCE_TOPICS]
    create_topic(broker.bootstrap, f"{app}-lines", 3)
    ada.until(lambda answer: MISSING_INTERNAL_TOPICS in codes(answer))
    ada.until(lambda answer: not answer.status)
    assert (ada.tasks, ada.standby) == ({"0": [0, 1, 2], "1": [0, 1, 2]}, {})
    topics = admin.topics.list()
    for name in (f"{app}-words-repartition", f"{app}-counts-changelog"):
        assert len(topics[name].partitions) == 3
    bob = StreamsMember(broker, app, topology)
    bob.until(lambda answer: ada.beat() is not None and sum(map(len, bob.tasks.values())) == 3)
    assert sorted(len(member.tasks["0"]) for member in (ada, bob)) == [1, 2]
    set_group_option(broker.bootstrap, app, "streams.num.standby.replicas", "1")
    bob.until(lambda answer: ada.beat() is not None and bool(bob.standby) and bool(ada.standby))
    assert sorted(bob.standby["1"] + bob.tasks["1"]) == [0, 1, 2]

    group = admin.streams_groups.describe([app])[app]
    assert (group.state, [part.id for part in group.subtopologies]) == ("Stable", ["0", "1"])
    assert group.internal_topics == (f"{app}-counts-changelog", f"{app}-words-repartition")
    described = {member.id: member for member in group.members}
    assert described[ada.member_id].endpoint == ("ada", 80)
    assert {
        part: list(numbers) for part, numbers in described[bob.member_id].assigned.standby.items()
    } == bob.standby
    # What tools for groups of every type see.
    plain = admin.groups.describe([app])[app]
    assert (plain.type, len(plain.members)) == ("streams", 2)
    bob.leave()
    ada.leave()
    assert admin.streams_groups.describe([app])[app].state == "Empty"


def test_a_failed_creation_is_told(broker: BrokerProcess, app: str) -> None:
    create_topic(broker.bootstrap, app, 1)
    topology = counting(app, app)
    topology.subtopologies[1].repartition_source_topics[0].replication_factor = 3
    member = StreamsMember(broker, app, topology)
    answer = member.until(lambda answer: "Creation failed" in answer.status[0].status_detail)
    assert f"{app}-words-repartition (INVALID_REPLICATION_FACTOR" in answer.status[0].status_detail
    member.leave()


def test_topologies_with_wrong_names_are_refused(broker: BrokerProcess, app: str) -> None:
    for name, text in (("__consumer_offsets", "prohibited"), ("a b", "not valid topic names")):
        topology = Topology(subtopologies=[Subtopology(subtopology_id="0", source_topics=[name])])
        answer = StreamsMember(broker, app, topology).beat()
        assert answer.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
        assert text in answer.error_message
    create_topic(broker.bootstrap, app, 1)
    answer = StreamsMember(broker, app, counting(app, app)).beat(standby_tasks=None)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_options_of_a_group_have_limits(broker: BrokerProcess, app: str, admin: Admin) -> None:
    group = ConfigResource(ConfigKind.GROUP, app)
    failed = admin.configs.alter({group: set_to({"streams.num.standby.replicas": "3"})}).failed
    assert "group.streams.max.standby.replicas" in str(failed[group])
    shown = admin.configs.describe([group])[group]
    values = {name: config.value for name, config in shown.items()}
    assert values["streams.session.timeout.ms"] == "45000"
    assert values["streams.assignment.interval.ms"] == "0"


def test_administration(
    broker: BrokerProcess, cli: Cli, app: str, admin: Admin, capsys: pytest.CaptureFixture[str]
) -> None:
    def tool(*arguments: str, code: int = 0) -> str:
        """What kafka-streams-groups prints; within this process, which is much faster."""
        assert run("kafka-streams-groups", [*arguments, "--bootstrap-server", broker.bootstrap]) == code
        printed = capsys.readouterr()
        return printed.out + printed.err

    create_topic(broker.bootstrap, app, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in (b"a", b"b"):
        producer.produce(app, value, partition=1)
    producer.flush()
    member = StreamsMember(broker, app, counting(app, app))
    member.until(lambda answer: bool(member.tasks))
    assert app in tool("--list").splitlines()
    assert tool("--describe", "--group", app).split() == [
        *("GROUP", "TOPIC", "PARTITION", "OFFSET-LAG", app, app, "0", "0", app, app, "1", "2"),
        *(app, f"{app}-words-repartition", "0", "0", app, f"{app}-words-repartition", "1", "0"),
    ]
    assert "ACTIVE: 0:[0,1]; 1:[0,1]; TARGET-ACTIVE: 0:[0,1]; 1:[0,1]; " in tool(
        "--describe", "--group", app, "--members", "--verbose"
    )
    assert "is not EMPTY" in tool("--delete", "--group", app)
    (shown,) = cli.json("group", "describe", app)
    assert (shown["type"], shown["state"], shown["members"][0]["partitions"][0]) == (
        "streams",
        "stable",
        f"{app}:0",
    )
    assert {"group": app, "state": "stable", "type": "streams"} in cli.json("group", "list")
    member.leave()

    Consumer({"bootstrap.servers": cli.bootstrap, "group.id": app}).commit(
        offsets=[TopicPartition(app, 1, 1)], asynchronous=False
    )
    shown_reset = tool("--reset-offsets", "--group", app, "--all-input-topics", "--to-latest", "--execute")
    assert shown_reset.split()[-4:] == [app, app, "1", "2"]
    assert admin.groups.offsets([app])[app][(app, 1)].offset == 2
    assert "not part of the group" in tool(
        "--reset-offsets", "--group", app, "--input-topic", "other", "--to-latest", "--dry-run", code=1
    )
    assert "Successful" in tool("--delete-offsets", "--group", app, "--input-topic", app)
    tool("--delete", "--group", app, "--delete-all-internal-topics")
    assert not [name for name in admin.topics.list() if name.startswith(f"{app}-")]
    assert "not found" in tool("--describe", "--group", app, code=1)
