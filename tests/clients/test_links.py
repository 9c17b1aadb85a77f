"""Links: topics of one cluster copied into another with their offsets, seen by clients that know nothing of links."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from barnabas.admin import AclRule, Admin, Link, Operation, Pattern, Permission, ResourceError, ResourceType
from barnabas.admin import TopicPartition as AdminPartition
from barnabas.cli.main import run as barnabas
from barnabas.cores.links import LinkSpec
from barnabas.proxy.errors import from_kafka
from barnabas.proxy.kafka import Kafka
from barnabas.proxy.producing import Delivered, Outgoing, Producing
from barnabas.testing import Broker
from tests.support.cluster import until


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[Broker, Broker]]:
    """A source and a target."""
    with Broker() as source, Broker() as target:
        yield source, target


def topic(bootstrap: str, name: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    named = {key.replace("__", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=named)])[name].result(60)


def send(bootstrap: str, name: str, values: Iterator[str] | list[str], **options: Any) -> list[int]:
    """The offsets that the records got."""
    offsets: list[int] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **options})
    failed: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        failed.append(error) if error else offsets.append(message.offset())

    for value in values:
        producer.produce(
            name, value, key=f"k{value}", headers={"h": value}, partition=0, on_delivery=delivered
        )
    assert producer.flush(60) == 0
    if failed:
        raise KafkaException(failed[0])
    return offsets


def read(bootstrap: str, name: str, count: int, partition: int = 0, **options: Any) -> list[tuple[Any, ...]]:
    """(offset, timestamp, key, value, headers) of the first `count` records."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **options,
        }
    )
    consumer.assign([TopicPartition(name, partition, -2)])
    records_read: list[tuple[Any, ...]] = []
    while len(records_read) < count:
        for record in consumer.consume(count - len(records_read), 1.0):
            assert record.error() is None, record.error()
            records_read.append(
                (record.offset(), record.timestamp(), record.key(), record.value(), record.headers())
            )
    consumer.close()
    return records_read


@contextlib.contextmanager
def linked(
    source: str, target: str, name: str, topics: str, groups: str = "", **more: Any
) -> Iterator[Admin]:
    spec = LinkSpec(name, {"bootstrap.servers": source}, topics, groups=groups, interval_ms=100, **more)
    with Admin(target) as admin:
        admin.links.create(name, spec.texts())
        yield admin


def link_of(admin: Admin, name: str) -> Link:
    return next(link for link in admin.links.describe([name]))


def caught_up(admin: Admin, name: str, partitions: int, end: int = 1) -> Link:
    """The link once all of so many partitions are in sync, and one of them ends at `end` or later."""

    def look() -> Link | None:
        link = link_of(admin, name)
        rows = link.partitions
        good = len(rows) == partitions and all(row.state == "in sync" for row in rows)
        return link if good and max(row.log_end for row in rows) >= end else None

    found = until(look, f"link {name} in sync")
    assert found is not None
    return found


def test_a_copy_has_offsets_timestamps_keys_and_headers_of_the_source(
    clusters: tuple[Broker, Broker],
) -> None:
    source, target = clusters
    topic(source.bootstrap, "orders", 3, retention__ms="-1")
    send(source.bootstrap, "orders", [str(number) for number in range(500)])
    with linked(source.bootstrap, target.bootstrap, "all", "orders") as admin:
        caught_up(admin, "all", 3, 500)
        assert read(target.bootstrap, "orders", 500) == read(source.bootstrap, "orders", 500)
        send(source.bootstrap, "orders", ["later"])
        caught_up(admin, "all", 3, 501)
        assert read(target.bootstrap, "orders", 501)[-1] == read(source.bootstrap, "orders", 501)[-1]


def test_a_copy_is_read_only_until_it_is_promoted(clusters: tuple[Broker, Broker]) -> None:
    source, target = clusters
    topic(source.bootstrap, "guarded", retention__ms="-1")
    send(source.bootstrap, "guarded", ["a", "b"])
    with linked(source.bootstrap, target.bootstrap, "guard", "guarded") as admin:
        caught_up(admin, "guard", 1, 2)
        with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
            send(target.bootstrap, "guarded", ["c"])
        with pytest.raises(ResourceError, match="link 'guard'"):
            admin.topics.add_partitions({"guarded": 2}).require()
        with pytest.raises(ResourceError, match="POLICY_VIOLATION"):
            admin.records.delete({AdminPartition("guarded", 0): 1}).require()
        with pytest.raises(ResourceError, match="barnabas mirror link promote"):
            alter(target.bootstrap, "guarded", "barnabas.link", "")
        assert [tail.unmirrored for tail in admin.links.promote("guard", validate_only=True)] == [0]
        with pytest.raises(ResourceError, match="mirrors guarded"):
            admin.links.delete("guard")
        admin.links.promote("guard")
        assert send(target.bootstrap, "guarded", ["c"]) == [2]
        assert [row[3] for row in read(target.bootstrap, "guarded", 3)] == [b"a", b"b", b"c"]
        admin.links.delete("guard")
        assert link_names(admin) & {"guard"} == set()


def test_those_who_write_to_a_copy_by_command_or_by_rest_are_told_how_to_make_it_writable(
    clusters: tuple[Broker, Broker], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = clusters
    topic(source.bootstrap, "closed")
    told = "closed is a read-only copy that the link 'shut' mirrors from another cluster; .*mirror link promote shut"
    with linked(source.bootstrap, target.bootstrap, "shut", "closed") as admin:
        caught_up(admin, "shut", 1, 0)
        lines = tmp_path / "lines"
        lines.write_text("one\n")
        assert barnabas(["produce", "closed", str(lines), "-b", target.bootstrap]) == 3
        assert re.search(f"1 record not delivered: {told}", capsys.readouterr().err)

        async def by_rest() -> list[Delivered]:
            kafka = Kafka({"bootstrap.servers": target.bootstrap})
            producing = Producing(kafka)
            try:
                return await producing.send("closed", [Outgoing(None, b"one")])
            finally:
                await producing.stop()
                await kafka.close()

        (delivered,) = asyncio.run(by_rest())
        assert delivered.error is not None
        assert re.match(told, from_kafka(delivered.error).message)
        admin.links.promote("shut")
        admin.links.delete("shut")


def alter(bootstrap: str, name: str, option: str, value: str) -> None:
    """As kafka-configs does it."""
    change = ConfigEntry(option, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", name, incremental_configs=[change])
    clients = AdminClient({"bootstrap.servers": bootstrap})
    try:
        clients.incremental_alter_configs([resource])[resource].result(60)
    except KafkaException as error:
        raise ResourceError(error.args[0].code(), "alter", name, error.args[0].str()) from None


def offsets_of(admin: Admin, group: str) -> dict[tuple[str, int], int]:
    offsets_of_group = admin.groups.offsets([group]).done.get(group, {})
    return {(key.topic, key.partition): row.offset for key, row in offsets_of_group.items()}


def link_names(admin: Admin) -> set[str]:
    return {link.name for link in admin.links.describe()}


def test_transactions_come_with_their_markers_and_open_ones_are_aborted_by_a_promotion(
    clusters: tuple[Broker, Broker],
) -> None:
    source, target = clusters
    topic(source.bootstrap, "paid", retention__ms="-1")
    kept: list[bytes] = []
    producer = Producer({"bootstrap.servers": source.bootstrap, "transactional.id": "pays"})
    producer.init_transactions(60)
    for number in range(6):
        producer.begin_transaction()
        for part in range(3):
            producer.produce("paid", f"{number}.{part}", partition=0)
        producer.flush(60)  # an abort drops what was not sent
        if number % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
            kept += [f"{number}.{part}".encode() for part in range(3)]
    producer.begin_transaction()
    producer.produce("paid", "open", partition=0)
    producer.flush(60)
    with linked(source.bootstrap, target.bootstrap, "txn", "paid") as admin:
        caught_up(admin, "txn", 1, 25)
        assert [row[3] for row in read(target.bootstrap, "paid", 9)] == kept
        everything: dict[str, Any] = {"isolation.level": "read_uncommitted"}
        assert read(target.bootstrap, "paid", 19, **everything) == read(
            source.bootstrap, "paid", 19, **everything
        )
        assert [tail.open_transactions for tail in admin.links.promote("txn")] == [1]
        send(target.bootstrap, "paid", ["after"])
        assert [row[3] for row in read(target.bootstrap, "paid", 10)] == [*kept, b"after"]


def test_no_producer_of_the_target_has_the_id_of_one_in_a_copy() -> None:
    """With the same id, its first batch would be taken for the first one that the other wrote, and be dropped."""
    exact = {"enable.idempotence": True}
    with Broker() as source, Broker() as target:
        topic(source.bootstrap, "ids")
        topic(target.bootstrap, "reserves-ids")
        send(target.bootstrap, "reserves-ids", ["one"], **exact)
        send(source.bootstrap, "ids", ["first"], **exact)
        with linked(source.bootstrap, target.bootstrap, "ids", "ids") as admin:
            caught_up(admin, "ids", 1, 1)
            for number in range(5):
                send(source.bootstrap, "ids", [f"there {number}"], **exact)
            caught_up(admin, "ids", 1, 6)
            admin.links.promote("ids")
            for number in range(5):
                send(target.bootstrap, "ids", [f"here {number}"], **exact)
        wanted = [b"first", *(b"%s %d" % (side, at) for side in (b"there", b"here") for at in range(5))]
        assert [row[3] for row in read(target.bootstrap, "ids", 11)] == wanted


def test_offsets_of_groups_are_those_of_the_source(clusters: tuple[Broker, Broker]) -> None:
    source, target = clusters
    topic(source.bootstrap, "grouped", 2, retention__ms="-1")
    send(source.bootstrap, "grouped", [str(number) for number in range(10)])
    reader = Consumer({"bootstrap.servers": source.bootstrap, "group.id": "billing"})
    reader.commit(offsets=[TopicPartition("grouped", 0, 7)], asynchronous=False)
    with linked(source.bootstrap, target.bootstrap, "groups", "grouped", "bill.*") as admin:
        caught_up(admin, "groups", 2, 10)
        until(lambda: offsets_of(admin, "billing") == {("grouped", 0): 7}, "the group's offset")
        reader.commit(
            offsets=[TopicPartition("grouped", 0, 3), TopicPartition("grouped", 1, 0)], asynchronous=False
        )
        until(
            lambda: offsets_of(admin, "billing") == {("grouped", 0): 3, ("grouped", 1): 0},
            "the offsets, also backwards",
        )
    reader.close()


def test_options_partitions_and_the_log_start_follow_the_source(clusters: tuple[Broker, Broker]) -> None:
    source, target = clusters
    topic(source.bootstrap, "grows", 1, retention__ms="-1", max__message__bytes="20000")
    send(source.bootstrap, "grows", [str(number) for number in range(10)])
    ours = AdminClient({"bootstrap.servers": source.bootstrap})
    with linked(source.bootstrap, target.bootstrap, "grow", "grows") as admin:
        caught_up(admin, "grow", 1, 10)
        ours.create_partitions([NewPartitions("grows", 3)])["grows"].result(60)
        alter(source.bootstrap, "grows", "max.message.bytes", "30000")
        ours.delete_records([TopicPartition("grows", 0, 4)])
        caught_up(admin, "grow", 3, 10)
        described = ConfigResource("topic", "grows")
        theirs = AdminClient({"bootstrap.servers": target.bootstrap})

        def bytes_max() -> str:
            return str(theirs.describe_configs([described])[described].result(60)["max.message.bytes"].value)

        until(lambda: bytes_max() == "30000", "the changed option")
        until(lambda: link_of(admin, "grow").partitions[0].log_start == 4, "the log start")
        assert [row[0] for row in read(target.bootstrap, "grows", 6)] == [4, 5, 6, 7, 8, 9]


def test_a_topic_that_was_made_again_is_named_and_its_copy_stays(clusters: tuple[Broker, Broker]) -> None:
    source, target = clusters
    topic(source.bootstrap, "twice", retention__ms="-1")
    send(source.bootstrap, "twice", ["old"])
    ours = AdminClient({"bootstrap.servers": source.bootstrap})
    with linked(source.bootstrap, target.bootstrap, "again", "twice") as admin:
        caught_up(admin, "again", 1, 1)
        ours.delete_topics(["twice"])["twice"].result(60)
        until(lambda: "twice" not in ours.list_topics(timeout=60).topics, "the deletion")
        topic(source.bootstrap, "twice", retention__ms="-1")
        send(source.bootstrap, "twice", ["new", "newer"])
        until(lambda: link_of(admin, "again").partitions[0].state == "stopped", "the copy to stop")
        link = link_of(admin, "again")
        assert "deleted in the source and made again" in link.partitions[0].reason
        assert [row[3] for row in read(target.bootstrap, "twice", 1)] == [b"old"]


def test_a_copy_begins_at_the_log_start_and_retention_that_overtakes_it_is_counted(
    clusters: tuple[Broker, Broker],
) -> None:
    source, target = clusters
    topic(source.bootstrap, "short", retention__ms="-1")
    send(source.bootstrap, "short", [str(number) for number in range(10)])
    ours = AdminClient({"bootstrap.servers": source.bootstrap})
    ours.delete_records([TopicPartition("short", 0, 4)])[TopicPartition("short", 0)].result(60)
    with linked(source.bootstrap, target.bootstrap, "cut", "short") as admin:
        row = caught_up(admin, "cut", 1, 10).partitions[0]
        assert (row.log_start, row.missed) == (4, 0)
        admin.links.pause("cut")
        send(source.bootstrap, "short", [str(number) for number in range(10)])
        ours.delete_records([TopicPartition("short", 0, 15)])[TopicPartition("short", 0)].result(60)
        admin.links.resume("cut")
        row = caught_up(admin, "cut", 1, 20).partitions[0]
        assert (row.log_start, row.log_end, row.missed) == (15, 20, 5)


def test_a_link_goes_on_after_restarts_of_both_sides() -> None:
    with Broker() as source, Broker() as target:
        topic(source.bootstrap, "lasts", retention__ms="-1")
        send(source.bootstrap, "lasts", ["a"])
        with linked(source.bootstrap, target.bootstrap, "lasting", "lasts") as admin:
            caught_up(admin, "lasting", 1, 1)
        target.restart()
        send(source.bootstrap, "lasts", ["b"])
        with Admin(target.bootstrap) as admin:
            caught_up(admin, "lasting", 1, 2)
            source.restart()
            send(source.bootstrap, "lasts", ["c"])
            caught_up(admin, "lasting", 1, 3)
        assert read(target.bootstrap, "lasts", 3) == read(source.bootstrap, "lasts", 3)


def test_a_source_that_is_gone_is_failed_over_and_what_was_not_copied_is_named() -> None:
    with Broker() as source, Broker() as target:
        topic(source.bootstrap, "kept", retention__ms="-1")
        send(source.bootstrap, "kept", ["a", "b", "c"])
        reader = Consumer({"bootstrap.servers": source.bootstrap, "group.id": "readers"})
        reader.commit(offsets=[TopicPartition("kept", 0, 2)], asynchronous=False)
        reader.close()
        with linked(source.bootstrap, target.bootstrap, "doomed", "kept", ".*") as admin:
            caught_up(admin, "doomed", 1, 3)
            until(lambda: offsets_of(admin, "readers") == {("kept", 0): 2}, "the group's offset")
            source.stop()
            until(lambda: link_of(admin, "doomed").partitions[0].reason, "the link to notice")
            with pytest.raises(ResourceError, match="barnabas mirror link failover"):
                admin.links.promote("doomed")
            [tail] = admin.links.promote("doomed", without_source=True)
            assert (tail.mirrored_end, tail.unmirrored) == (3, 0)
            epoch = admin.topics.describe(["kept"]).done["kept"].partitions[0].leader_epoch
            assert epoch >= 1000
        assert send(target.bootstrap, "kept", ["d"]) == [3]
        moved = Consumer(
            {"bootstrap.servers": target.bootstrap, "group.id": "readers", "auto.offset.reset": "error"}
        )
        moved.subscribe(["kept"])
        values_read: list[bytes] = []
        while len(values_read) < 2:
            values_read += [record.value() for record in moved.consume(2, 1.0) if record.error() is None]
        moved.close()
        assert values_read == [b"c", b"d"]


def test_a_paused_link_copies_nothing_until_it_goes_on(clusters: tuple[Broker, Broker]) -> None:
    source, target = clusters
    topic(source.bootstrap, "rests", retention__ms="-1")
    send(source.bootstrap, "rests", ["a"])
    with linked(source.bootstrap, target.bootstrap, "resting", "rests") as admin:
        caught_up(admin, "resting", 1, 1)
        admin.links.pause("resting")
        until(lambda: link_of(admin, "resting").partitions[0].state == "paused", "the pause")
        send(source.bootstrap, "rests", ["b"])
        with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
            send(target.bootstrap, "rests", ["c"])
        admin.links.resume("resting")
        caught_up(admin, "resting", 1, 2)


def test_both_sides_are_compared_and_the_first_difference_is_named(
    clusters: tuple[Broker, Broker], capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = clusters
    topic(source.bootstrap, "same", retention__ms="-1")
    for begin in range(0, 250, 50):  # each a batch
        send(
            source.bootstrap,
            "same",
            [str(number) for number in range(begin, begin + 50)],
            **{"linger.ms": 100},
        )

    def run(*words: str) -> tuple[int, str, str]:
        code = barnabas(["mirror", *words, "-b", target.bootstrap])
        out = capsys.readouterr()
        return code, out.out, out.err

    where = ("--from", source.bootstrap, "--topics", "same", "--interval-ms", "100")
    assert run("link", "create", "check", *where, "--preview")[:2] == (
        0,
        "TOPIC  PARTITIONS\nsame            1\n",
    )
    assert (
        run("link", "create", "check", *where)[1]
        == f"created link check: copies 1 topic of {source.bootstrap}\n"
    )
    with Admin(target.bootstrap) as admin:
        caught_up(admin, "check", 1, 250)
        code, out, err = run("verify", "check", "--range", "100")
        assert (code, err) == (0, "250 records in 3 ranges: both sides are the same\n")
        assert [line.split()[2:5] for line in out.splitlines()[1:]] == [
            ["0", "to", "99"],
            ["100", "to", "199"],
            ["200", "to", "249"],
        ]
        assert "same   in sync" in run("status", "check")[1].replace("check  ", "")
        assert run("link", "promote", "check")[0] == 0
        send(source.bootstrap, "same", ["there"])
        send(target.bootstrap, "same", ["here"])
        code, _, err = run("verify", "check", "-t", "same")
        assert (code, err) == (1, "same-0 differs from offset 250 on\n")
        assert run("link", "delete", "check")[1] == "deleted link check\n"
        code, _, err = run("link", "status", "check")
        assert (code, "no link is called check" in err) == (1, True)


def test_a_copy_is_cut_to_a_source_that_has_lost_records() -> None:
    with Broker() as source, Broker() as target:
        topic(source.bootstrap, "lossy", retention__ms="-1")
        send(source.bootstrap, "lossy", [f"kept {number}" for number in range(5)])
        with linked(source.bootstrap, target.bootstrap, "cuts", "lossy") as admin:
            caught_up(admin, "cuts", 1, 5)
            before = source.snapshot()
            send(source.bootstrap, "lossy", [f"lost {number}" for number in range(5)])
            caught_up(admin, "cuts", 1, 10)
            source.restore(before)

            def dropped() -> int:
                rows = link_of(admin, "cuts").partitions
                return rows[0].dropped if rows else 0

            until(lambda: dropped() == 5, "the cut")
            assert [row[3] for row in read(target.bootstrap, "lossy", 5)] == [
                b"kept %d" % number for number in range(5)
            ]
            send(source.bootstrap, "lossy", ["new"])
            caught_up(admin, "cuts", 1, 6)
            assert read(target.bootstrap, "lossy", 6) == read(source.bootstrap, "lossy", 6)


def test_a_former_source_becomes_a_copy_without_what_was_never_copied(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Broker() as source, Broker() as target:
        topic(source.bootstrap, "turned", retention__ms="-1")
        send(source.bootstrap, "turned", ["a", "b"])
        with linked(source.bootstrap, target.bootstrap, "turn", "turned") as admin:
            caught_up(admin, "turn", 1, 2)
            assert barnabas(["mirror", "link", "reverse", "turn", "-b", target.bootstrap]) == 1
            assert "promote it first" in capsys.readouterr().err
            admin.links.promote("turn")
        send(source.bootstrap, "turned", ["never copied"])
        send(target.bootstrap, "turned", ["c", "d"])
        assert barnabas(["mirror", "link", "reverse", "turn", "--preview", "-b", target.bootstrap]) == 0
        assert capsys.readouterr().out.splitlines()[1].split() == [
            "turned",
            "0",
            "2",
            "2",
            "to",
            "2",
            "2",
            "to",
            "3",
        ]
        assert barnabas(["mirror", "link", "reverse", "turn", "-b", target.bootstrap]) == 0
        with Admin(source.bootstrap) as admin:
            caught_up(admin, "turn", 1, 4)
        assert [row[3] for row in read(source.bootstrap, "turned", 4)] == [b"a", b"b", b"c", b"d"]
        assert read(source.bootstrap, "turned", 4) == read(target.bootstrap, "turned", 4)
        with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
            send(source.bootstrap, "turned", ["e"])


def test_a_copy_may_begin_at_a_time(clusters: tuple[Broker, Broker]) -> None:
    source, target = clusters
    topic(source.bootstrap, "timed", 2, retention__ms="-1")
    send(source.bootstrap, "timed", [str(number) for number in range(10)])
    since = int(time.time() * 1000) + 2
    until(lambda: time.time() * 1000 > since, "the next millisecond")
    send(source.bootstrap, "timed", ["10", "11"])
    with linked(source.bootstrap, target.bootstrap, "timing", "timed", start_ms=since) as admin:
        caught_up(admin, "timing", 2, 12)
        assert [row[0] for row in read(target.bootstrap, "timed", 2)] == [10, 11]


def test_access_rules_of_topics_are_copied_except_those_to_write() -> None:
    options = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    kind = ResourceType.TOPIC
    rules = [
        AclRule(kind, "ruled", "User:reads", Operation.READ),
        AclRule(kind, "ruled", "User:writes", Operation.WRITE),
        AclRule(kind, "ruled", "User:all", Operation.ALL),
        AclRule(kind, "ruled", "User:eve", Operation.WRITE, Permission.DENY),
        AclRule(kind, "ru", "User:prefix", Operation.READ, pattern=Pattern.PREFIXED),
        AclRule(kind, "other", "User:reads", Operation.READ),
    ]
    with Broker(options) as source, Broker(options) as target:
        topic(source.bootstrap, "ruled", retention__ms="-1")
        with Admin(source.bootstrap) as admin:
            admin.acls.create(rules).require()
        with linked(source.bootstrap, target.bootstrap, "rules", "ruled", acls=True) as admin:
            until(lambda: len(admin.acls.list()) == 4, "the rules")
            found = {(rule.principal, rule.operation) for rule in admin.acls.list()}
        assert found == {
            ("User:reads", Operation.READ),
            ("User:all", Operation.READ),
            ("User:eve", Operation.WRITE),
            ("User:prefix", Operation.READ),
        }
