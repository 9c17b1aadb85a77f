"""The blocking client against a real broker: restarts in the middle, what is not there, what is refused."""

from __future__ import annotations

import threading
import time

import pyarrow as pa
import pytest

from barnabas.client.blocking import EARLIEST, LATEST, BlockingClient, NewTopic
from barnabas.client.errors import BrokerError, BrokerUnavailable, ClientError, UnknownTopic
from barnabas.client.fetching import OffsetOutOfRange
from barnabas.client.options import ClientOptions, parse_bootstrap
from barnabas.client.producing import ProduceStream
from barnabas.client.watching import Watch
from barnabas.pipelines.formats.columns import append_batch
from barnabas.records.columnar import decode
from barnabas.records.columnar_encoder import BatchEncoder
from tests.pipelines.conftest import records_of, send


def test_a_killed_broker_loses_and_doubles_nothing(own_broker):
    broker = own_broker()
    with BlockingClient(broker.bootstrap) as client:
        client.create_topics([NewTopic("t", 3)])
        producer_id, epoch = client.init_producer_id()
        encoder = BatchEncoder(3, producer_id=producer_id, producer_epoch=epoch, batch_bytes_max=2_000)
        stream = ProduceStream(client.cluster)
        killer = threading.Timer(0.3, lambda: (broker.kill(), broker.start()))
        killer.start()
        sent = 0
        while killer.is_alive() or sent < 20_000:
            values = [b"%d" % i for i in range(sent, sent + 200)]
            sent += len(values)
            append_batch(encoder, pa.record_batch({"value": pa.array(values)}), 0)
            stream.send("t", encoder.take())
        stream.send("t", encoder.flush())
        stream.flush()
        killer.join()
        assert stream.records == sent
        numbers = [int(row["value"]) for row in records_of(client, "t")]
        assert sorted(numbers) == list(range(sent))


def test_reading_goes_on_after_a_restart(own_broker):
    broker = own_broker()
    with BlockingClient(broker.bootstrap) as client:
        client.create_topics([NewTopic("t", 1)])
        for i in range(50):
            send(client, "t", [bytes(1000)] * 10 + [b"%d" % i])
        rows = 0
        for number, piece in enumerate(client.read("t", 0, 0, 550, max_bytes=20_000)):
            rows += decode(piece.records, piece.start, 550).rows
            if number == 2:
                broker.restart()
        assert rows == 550


def test_what_is_not_there(client, new_topic):
    topic = new_topic(1)
    send(client, topic, [b"a"])
    with pytest.raises(UnknownTopic, match="topic nowhere does not exist"):
        client.fetch_raw("nowhere", 0, 0)
    with pytest.raises(UnknownTopic, match=f"{topic} has no partition 7; it has 1"):
        client.fetch_raw(topic, 7, 0)
    with pytest.raises(OffsetOutOfRange, match=f"offset 9 of {topic}-0 is not there"):
        client.fetch_raw(topic, 0, 9)
    assert client.fetch_raw(topic, 0, 1, max_wait_ms=0).records == b""
    assert client.committed("no-such-group") == {}
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        client.delete_topics(["nowhere"])


def test_times_and_ends(client, new_topic):
    topic = new_topic(2)
    send(client, topic, [b"a", b"b"], 1)
    pairs = [(topic, 0), (topic, 1)]
    assert [t.offset for t in client.list_offsets(dict.fromkeys(pairs, EARLIEST)).values()] == [0, 0]
    assert [t.offset for t in client.list_offsets(dict.fromkeys(pairs, LATEST)).values()] == [0, 2]
    at = client.list_offsets({(topic, 0): 1_700_000_000_000, (topic, 1): 1_700_000_000_000})
    assert at[topic, 0].offset == -1
    assert at[topic, 1] == (0, 1_700_000_000_000)


def test_an_address_where_nobody_is():
    options = ClientOptions(parse_bootstrap("127.0.0.1:1,127.0.0.1:2"), contact_timeout_s=0.1)
    with BlockingClient(options) as client, pytest.raises(BrokerUnavailable) as caught:
        client.topics()
    assert "127.0.0.1:1" in str(caught.value)
    assert "127.0.0.1:2" in str(caught.value)
    with pytest.raises(ClientError, match="is not host:port"):
        BlockingClient("a:b:c")


def test_a_batch_that_is_too_large(client, new_topic):
    topic = new_topic(1, max_message_bytes="1000")
    with pytest.raises(BrokerError, match=r"max\.message\.bytes|MESSAGE_TOO_LARGE"):
        send(client, topic, [bytes(5000)])


def test_waiting_for_records(client, bootstrap, new_topic):
    one, two = new_topic(1), new_topic(2)
    positions = {(one, 0): 0, (two, 0): 0, (two, 1): 0}
    with BlockingClient(bootstrap) as other:
        other.describe([one, two])
        watch = Watch(other.cluster, read_committed=False)
        begun = time.monotonic()
        assert not any(watch.wait(positions, 0.2) for _ in range(4)), "nothing is there"
        assert time.monotonic() - begun >= 0.8, (
            "each waits for its time, whatever an earlier one left under way"
        )
        looks = iter([False, True])
        assert not watch.wait(positions, 60, lambda: next(looks)), "whoever is stopped does not wait on"
        writer = threading.Thread(target=send, args=(client, two, [b"a"]), kwargs={"partition": 1})
        writer.start()
        assert watch.wait(positions, 60)
        writer.join()
        assert other.list_offsets({(two, 1): LATEST})[two, 1].offset == 1, "others do not get its answers"
        assert watch.wait(positions, 60), "what is there already is told at once"
        beyond = {(one, 0): 5}
        assert watch.wait(beyond, 60), "positions that a log does not have are news"
        later = {**positions, (two, 1): 1}
        assert not watch.wait(later, 0.2)
        other.close()
        assert not watch.wait(later, 0.2), "a connection that somebody closed"
        assert not watch.wait({("nowhere", 0): 0}, 0.2)
        send(client, one, [b"b"])
        assert watch.wait(later, 60)
