"""The Spark data source against a real broker: batch and stream, offsets, limits, groups, lost records."""

from __future__ import annotations

import json
import threading
import time
from itertools import chain

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql.streaming.datasource import ReadAllAvailable

from barnabas.client.blocking import NewTopic
from barnabas.pipelines.spark.topics import offsets
from barnabas.pipelines.spark.topics.options import source_options
from barnabas.pipelines.spark.topics.source import StreamReader
from tests.pipelines.conftest import records_of, send
from tests.support.admin import KEPT

pytestmark = pytest.mark.spark


def reader(spark, bootstrap, topic, **options):
    loading = spark.read.format("barnabas").option("kafka.bootstrap.servers", bootstrap)
    chosen = {} if "assign" in options or "subscribePattern" in options else {"subscribe": topic}
    return loading.options(**{**chosen, "startingOffsets": "earliest", **options}).load()


def stream(spark, bootstrap, topic, checkpoint, sink, **options):
    """Runs a stream with AvailableNow into a list; the query, ended."""
    loading = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", bootstrap)
    rows = loading.options(**{"subscribe": topic, "startingOffsets": "earliest", **options}).load()

    def keep(batch, _):
        sink.append([bytes(row.value) for row in batch.orderBy("partition", "offset").collect()])

    query = (
        rows.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def test_rows_come_back_as_they_were_written(spark, bootstrap, client, new_topic):
    topic = new_topic(3)
    rows = spark.sql(
        """
        SELECT cast(if(id % 5 = 0, null, concat('k', id % 7)) AS binary) AS key,
               if(id % 11 = 0, null, concat('value ', id)) AS value,
               timestamp_millis(1600000000000 + id) AS timestamp,
               if(id % 3 = 0, array(struct('h' AS key, cast('x' AS binary) AS value),
                                    struct('n' AS key, cast(null AS binary) AS value)), null) AS headers
        FROM range(5000)
        """
    )
    rows.write.format("barnabas").option("kafka.bootstrap.servers", bootstrap).option("topic", topic).mode(
        "append"
    ).save()
    back = reader(spark, bootstrap, topic, includeHeaders="true")
    assert back.count() == 5000
    columns = ["key", "cast(value AS string) value", "timestamp", "headers"]
    assert back.selectExpr(*columns).exceptAll(rows.selectExpr(*columns)).count() == 0
    assert back.select("timestampType").distinct().collect()[0][0] == 0
    assert {row.partition for row in back.select("partition").distinct().collect()} == {0, 1, 2}
    # A client that somebody else wrote reads the same.
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    consumer.assign([TopicPartition(topic, p, 0) for p in range(3)])
    seen = []
    while len(seen) < 5000:
        message = consumer.poll(10)
        assert message is not None
        assert message.error() is None
        seen.append((message.key(), message.value()))
    consumer.close()
    assert sorted(seen, key=repr) == sorted(
        ((r["key"], r["value"]) for r in records_of(client, topic)), key=repr
    )


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_topics(spark, bootstrap, new_topic, codec):
    topic = new_topic(1)
    rows = spark.range(300).selectExpr("concat('value ', id) AS value")
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "kafka.compression.type": codec}
    rows.write.format("barnabas").options(**options).mode("append").save()
    assert sorted(
        bytes(r.value) for r in reader(spark, bootstrap, topic).select("value").collect()
    ) == sorted(b"value %d" % i for i in range(300))


def test_start_and_end_offsets(spark, bootstrap, client, new_topic):
    topic = new_topic(2)
    send(client, topic, [b"%d" % i for i in range(10)], 0)
    send(client, topic, [b"b%d" % i for i in range(10)], 1)
    client.commit(f"group-{topic}", {(topic, 0): 9})

    def values(**options):
        rows = reader(spark, bootstrap, topic, **options).orderBy("partition", "offset").collect()
        return [bytes(row.value).decode() for row in rows]

    assert values(
        startingOffsets=json.dumps({topic: {"0": 4, "1": -2}}),
        endingOffsets=json.dumps({topic: {"0": 6, "1": 2}}),
    ) == ["4", "5", "b0", "b1"]
    assert values(startingOffsets="latest") == []
    assert values(startingGroup=f"group-{topic}") == ["9", *(f"b{i}" for i in range(10))]
    assert values(assign=json.dumps({topic: [1]})) == [f"b{i}" for i in range(10)]
    assert len(values(subscribePattern=topic)) == 20
    assert values(startingTimestamp="1700000000001", startingOffsetsByTimestampStrategy="latest") == []
    with pytest.raises(Exception, match=r"has no record at or after 1700000000001"):
        values(startingTimestamp="1700000000001")
    assert len(values(minPartitions="7")) == 20
    assert len(values(maxRecordsPerPartition="3")) == 20


def test_a_stream_takes_what_is_there_in_limited_batches_and_goes_on(
    spark, bootstrap, client, new_topic, tmp_path
):
    topic = new_topic(1)
    group = f"group-{topic}"
    send(client, topic, [b"%d" % i for i in range(25)])
    batches: list[list[bytes]] = []
    options = {"maxOffsetsPerTrigger": "10", "commitGroup": group}
    stream(spark, bootstrap, topic, tmp_path, batches, **options)
    assert [len(batch) for batch in batches] == [10, 10, 5]
    assert client.committed(group) == {(topic, 0): 25}
    stream(spark, bootstrap, topic, tmp_path, batches, **options)
    send(client, topic, [b"new"])
    stream(spark, bootstrap, topic, tmp_path, batches, **options)
    assert list(chain.from_iterable(batches)) == [b"%d" % i for i in range(25)] + [b"new"]


def test_a_topic_made_again_is_noticed(spark, bootstrap, client, new_topic, tmp_path):
    topic = new_topic(1)
    send(client, topic, [b"old"])
    batches: list[list[bytes]] = []
    stream(spark, bootstrap, topic, tmp_path, batches)
    client.delete_topics([topic])
    _make_again(client, topic)
    send(client, topic, [b"new 1", b"new 2"])
    with pytest.raises(Exception, match="deleted and created again since the checkpoint"):
        stream(spark, bootstrap, topic, tmp_path, batches)
    stream(spark, bootstrap, topic, tmp_path, batches, onDataLoss="earliest")
    assert list(chain.from_iterable(batches)) == [b"old", b"new 1", b"new 2"]


def _make_again(client, topic):
    import time

    from barnabas.client.errors import BrokerError

    for _ in range(50):
        try:
            client.create_topics([NewTopic(topic, 1, configs=KEPT)])
            return
        except BrokerError:
            time.sleep(0.1)  # the deletion is still going on
    raise AssertionError(f"{topic} cannot be made again")


def test_no_option_is_taken_silently(spark, bootstrap, new_topic):
    topic = new_topic(1)
    with pytest.raises(Exception, match="has no option maxofsetspertrigger"):
        reader(spark, bootstrap, topic, maxOfsetsPerTrigger="10")
    with pytest.raises(Exception, match="onDataLoss=maybe is not stop, earliest or latest"):
        reader(spark, bootstrap, topic, onDataLoss="maybe")
    with pytest.raises(Exception, match="topic no-such-topic does not exist: create it"):
        reader(spark, bootstrap, "no-such-topic").collect()
    rows = spark.range(1).selectExpr("id AS value")
    with pytest.raises(Exception, match="column value is bigint"):
        rows.write.format("barnabas").option("kafka.bootstrap.servers", bootstrap).option(
            "topic", topic
        ).mode("append").save()


def test_records_trimmed_away_are_noticed(spark, bootstrap, client, new_topic, tmp_path):
    topic = new_topic(1)
    send(client, topic, [b"%d" % i for i in range(10)])
    batches: list[list[bytes]] = []
    stream(spark, bootstrap, topic, tmp_path, batches)
    send(client, topic, [b"%d" % i for i in range(10, 20)])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, 15)]).values():
        future.result(30)
    with pytest.raises(Exception, match=f"records 10 to 14 of {topic}-0 are gone"):
        stream(spark, bootstrap, topic, tmp_path, batches)
    assert len(batches) == 1
    stream(spark, bootstrap, topic, tmp_path, batches, failOnDataLoss="false")
    assert list(chain.from_iterable(batches)) == [b"%d" % i for i in (*range(10), *range(15, 20))]


def test_new_partitions_and_new_topics_of_a_pattern(spark, bootstrap, client, new_topic, tmp_path):
    topic = new_topic(1)
    send(client, topic, [b"a"])
    batches: list[list[bytes]] = []
    subscription = {"subscribePattern": f"{topic}(-x)?"}

    def run():
        loading = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", bootstrap)
        rows = loading.options(startingOffsets="latest", **subscription).load()

        def keep(batch, _):
            batches.append(sorted(bytes(row.value) for row in batch.collect()))

        query = rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path))
        query.trigger(availableNow=True).start().awaitTermination()

    run()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_partitions([NewPartitions(topic, 2)]).values():
        future.result(30)
    client.create_topics([NewTopic(f"{topic}-x", 1, configs=KEPT)])
    send(client, topic, [b"b"], 1)
    send(client, f"{topic}-x", [b"c"])
    run()
    assert batches[-1] == [b"b", b"c"]


def test_found_while_running(spark, bootstrap, client, new_topic, tmp_path):
    topic = new_topic(1)
    seen: list[bytes] = []
    loading = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", bootstrap)
    rows = loading.options(subscribePattern=f"{topic}(-x)?", startingOffsets="latest").load()
    query = (
        rows.writeStream.foreachBatch(lambda batch, _: seen.extend(bytes(r.value) for r in batch.collect()))
        .option("checkpointLocation", str(tmp_path))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        until(lambda: query.lastProgress is not None)
        send(client, topic, [b"a"])
        until(lambda: seen == [b"a"])
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for future in admin.create_partitions([NewPartitions(topic, 2)]).values():
            future.result(30)
        client.create_topics([NewTopic(f"{topic}-x", 1, configs=KEPT)])
        send(client, topic, [b"b"], 1)
        send(client, f"{topic}-x", [b"c"])
        until(lambda: sorted(seen) == [b"a", b"b", b"c"])
    finally:
        query.stop()


def until(what, seconds: float = 120):
    give_up = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < give_up
        time.sleep(0.05)


def test_going_on_at_the_end_when_records_are_gone(spark, bootstrap, client, new_topic, tmp_path):
    again, trimmed = new_topic(1), new_topic(1)
    both = f"{again},{trimmed}"
    batches: list[list[bytes]] = []

    def run():
        stream(spark, bootstrap, both, tmp_path, batches, onDataLoss="latest")

    send(client, again, [b"old"])
    send(client, trimmed, [b"0"])
    run()
    send(client, trimmed, [b"1", b"2"])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(trimmed, 0, 2)]).values():
        future.result(30)
    client.delete_topics([again])
    _make_again(client, again)
    send(client, again, [b"skipped"])
    run()
    send(client, again, [b"new"])
    send(client, trimmed, [b"3"])
    run()
    assert sorted(chain.from_iterable(batches)) == [b"0", b"3", b"new", b"old"]


def test_read_committed(spark, bootstrap, client, new_topic):
    topic = new_topic(1)
    try:
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "linger.ms": 0})
        producer.init_transactions(10)
    except KafkaException as error:
        pytest.skip(f"the broker has no transactions: {error}")
    for values, end in (([b"1", b"2"], "commit"), ([b"x", b"y"], "abort"), ([b"3"], "commit")):
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        producer.flush()
        producer.commit_transaction() if end == "commit" else producer.abort_transaction()
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush()

    def values(**options):
        return [
            bytes(r.value) for r in reader(spark, bootstrap, topic, **options).orderBy("offset").collect()
        ]

    assert values(**{"kafka.isolation.level": "read_committed"}) == [b"1", b"2", b"3"]
    assert values() == [b"1", b"2", b"x", b"y", b"3", b"open"]
    producer.abort_transaction()


def test_a_quiet_source_waits_for_records(client, bootstrap, new_topic, monkeypatch):
    """It would ask the broker ten times a second otherwise, as its query does."""
    monkeypatch.setattr(offsets, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(offsets, "WAIT_SECONDS", 60.0)
    topic = new_topic(2)
    reader = StreamReader(source_options({"kafka.bootstrap.servers": bootstrap, "subscribe": topic}))
    try:
        start = reader.initialOffset()
        writer = threading.Timer(0.3, send, args=(client, topic, [b"a"]), kwargs={"partition": 1})
        writer.start()
        reached = reader.latestOffset(start, ReadAllAvailable())
        writer.join()
        assert (reached[topic]["0"], reached[topic]["1"]) == (start[topic]["0"], 1)
    finally:
        reader.stop()


def test_a_batch_read_begins_at_the_earliest_record_unless_told_otherwise(
    spark, bootstrap, client, new_topic
):
    topic = new_topic(2)
    send(client, topic, [b"1", b"2", b"3"])
    plain = spark.read.format("barnabas").options(
        **{"kafka.bootstrap.servers": bootstrap, "subscribePattern": rf"\Q{topic}\E"}
    )
    assert plain.load().count() == 3
    assert plain.option("startingOffsets", "latest").load().count() == 0
