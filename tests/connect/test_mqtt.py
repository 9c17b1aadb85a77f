"""The MQTT connectors with a real mosquitto."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

pytest.importorskip("paho.mqtt.client")

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from barnabas.connect.errors import OptionError, RetriableError
from barnabas.connect.mqtt.kcql import Route, parse
from barnabas.connect.mqtt.link import wrong_filter
from barnabas.connect.mqtt.sink import ConfluentMqttSink, LensesMqttSink
from barnabas.connect.mqtt.source import ConfluentMqttSource, LensesMqttSource
from barnabas.connect.plugins import find_plugin
from barnabas.connect.schemas import INT32, STRING, struct
from barnabas.testing.connect import DrivenSource, run_sink, run_source
from tests.support.databases import NO_MOSQUITTO, Mosquitto, new_folder

NUMBERS = iter(range(10_000))


class Client:
    """A client of the tests."""

    def __init__(self, port: int, filter: str | None = None) -> None:
        self.got: list[tuple[str, bytes, bool]] = []
        self.ready = False
        self.client = paho.Client(CallbackAPIVersion.VERSION2, client_id=f"test{next(NUMBERS)}")
        self.client.on_message = lambda _, __, m: self.got.append((m.topic, m.payload, bool(m.retain)))
        self.client.on_subscribe = lambda *_: setattr(self, "ready", True)
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        if filter is not None:
            self.client.subscribe(filter, 1)
            wait_for(lambda: self.ready)

    def send(self, topic: str, *payloads: bytes, qos: int = 1) -> None:
        for payload in payloads:
            self.client.publish(topic, payload, qos).wait_for_publish(10)


def wait_for(done, limit_s: float = 20.0) -> None:
    deadline = time.monotonic() + limit_s
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def client(mosquitto) -> Iterator[Client]:
    connected = Client(mosquitto.port)
    yield connected
    connected.client.disconnect()
    connected.client.loop_stop()


def lesson(mosquitto, **more: str) -> dict[str, str]:
    """The lesson's configuration."""
    return {
        "connect.mqtt.connection.timeout": "1000",
        "tasks.max": "1",
        "connect.mqtt.kcql": "INSERT INTO truck_position SELECT * FROM truck/+/position",
        "connect.mqtt.connection.clean": "true",
        "connect.mqtt.service.quality": "0",
        "connect.mqtt.connection.keep.alive": "1000",
        "connect.mqtt.client.id": f"tm-{next(NUMBERS)}",
        "connect.mqtt.converter.throw.on.error": "true",
        "connect.mqtt.hosts": f"tcp://127.0.0.1:{mosquitto.port}",
        **more,
    }


def poll_until(source: DrivenSource, count: int) -> None:
    for _ in range(60):
        if len(source.records) >= count:
            return
        try:
            source.poll()
        except RetriableError:
            continue
    raise AssertionError(f"{len(source.records)} records, not {count}")


def test_the_lesson(mosquitto, client):
    with run_source(LensesMqttSource, lesson(mosquitto)) as source:
        source.poll()
        client.send("truck/13/position", b'{"truckid":13}', b'{"truckid":14}')
        client.send("truck/13/other", b"no")
        poll_until(source, 2)
        assert [(r.topic, r.key["topic"], r.value) for r in source.records] == [
            ("truck_position", "truck/13/position", b'{"truckid":13}'),
            ("truck_position", "truck/13/position", b'{"truckid":14}'),
        ]
        assert (
            source.records[0].key_schema.name == "com.datamountaineer.streamreactor.connect.converters.MsgKey"
        )


def test_what_was_not_committed_comes_again(mosquitto, client):
    options = {"connect.mqtt.service.quality": "1", "connect.mqtt.connection.clean": "false"}
    with run_source(LensesMqttSource, lesson(mosquitto, **options)) as source:
        source.poll()
        client.send("truck/1/position", b"a", b"b")
        poll_until(source, 2)
        client.send("truck/1/position", b"c")
        assert source.poll(commit=False)
        source.connector._link._client._sock_close()  # as if the process were killed: no DISCONNECT
        source.restart()
        client.send("truck/1/position", b"d")
        poll_until(source, 4)
        assert [record.value for record in source.records] == [b"a", b"b", b"c", b"d"]


def test_a_broker_that_restarts(client_folder):
    server = client_folder
    with run_source(
        LensesMqttSource, lesson(server, **{"connect.mqtt.hosts": f"127.0.0.1:{server.port}"})
    ) as source:
        source.poll()
        server.kill()
        server.start()
        sender = Client(server.port)
        for _ in range(60):
            sender.send("truck/1/position", b"x")
            try:
                source.poll()
            except RetriableError:
                continue
            if source.records:
                break
        assert source.records[0].value == b"x"
        sender.client.disconnect()
        sender.client.loop_stop()


@pytest.fixture
def client_folder(mosquitto):
    """A broker of its own, which may be killed."""
    broker = Mosquitto(new_folder("mq"))
    yield broker
    broker.kill()


def test_converters_keys_and_dynamic_topics(mosquitto, client):
    kcql = (
        "INSERT INTO `$` SELECT * FROM rooms/# WITHCONVERTER=`io.lenses.streamreactor.connect.converters.source."
        "JsonSimpleConverter` WITHKEY(id, place.room) KEYDELIMITER='-'"
    )
    options = {"connect.mqtt.kcql": kcql, "connect.mqtt.converter.throw.on.error": "false"}
    with run_source(LensesMqttSource, lesson(mosquitto, **options)) as source:
        source.poll()
        client.send("rooms/a/b", b'{"id":1,"place":{"room":"x"}}', b"not json", b'{"id":2}')
        client.send("rooms/a/b", b'{"id":3,"place":{"room":"y"}}')
        poll_until(source, 2)
        assert [(r.topic, r.key, r.value["id"]) for r in source.records] == [
            ("rooms_a_b", "1-x", 1),
            ("rooms_a_b", "3-y", 3),
        ]


def test_confluents_source(mosquitto, client):
    options = {
        "mqtt.server.uri": f"tcp://127.0.0.1:{mosquitto.port}",
        "mqtt.topics": "a/+,b",
        "mqtt.qos": "1",
    }
    with run_source(ConfluentMqttSource, options) as source:
        source.poll()
        client.send("a/1", b"x")
        poll_until(source, 1)
        (record,) = source.records
        assert (record.topic, record.key, record.value) == ("mqtt", "a/1", b"x")
        assert {h.key: h.value for h in record.headers}["mqtt.qos"] == 1


def test_sinks(mosquitto):
    reader = Client(mosquitto.port, "#")
    kcql = (
        "INSERT INTO trucks/all SELECT id FROM trucks; "
        "INSERT INTO x SELECT * FROM trucks WITHTARGET=place.topic WITHRETAIN=true"
    )
    with run_sink(
        LensesMqttSink,
        {"connect.mqtt.kcql": kcql, "connect.mqtt.hosts": f"tcp://127.0.0.1:{mosquitto.port}"},
    ) as sink:
        schema = struct({"id": INT32, "place": struct({"topic": STRING})})
        sink.put([sink.record("trucks", {"id": 1, "place": {"topic": "p/1"}}, None, schema)])
        sink.put([sink.record("trucks", {"id": 2})])
        assert str(sink.reported[0][1]) == "the value has no field place.topic, which WITHTARGET names"
    with run_sink(
        ConfluentMqttSink, {"mqtt.server.uri": f"tcp://127.0.0.1:{mosquitto.port}", "mqtt.qos": "1"}
    ) as sink:
        sink.put([sink.record("plain", b"\0\1"), sink.record("plain", "text")])
    wait_for(lambda: len(reader.got) >= 4)
    assert [(topic, payload) for topic, payload, _ in reader.got] == [
        ("trucks/all", b'{"id":1}'),
        ("p/1", b'{"id":1,"place":{"topic":"p/1"}}'),
        ("plain", b"\0\1"),
        ("plain", b"text"),
    ]
    reader.client.disconnect()
    reader.client.loop_stop()


def test_kcql():
    assert parse(
        "insert into a select * from b/c; INSERT INTO d SELECT x, y.z FROM 'e f' WITHKEY(x,y);", "o"
    ) == [
        Route("a", "b/c"),
        Route("d", "e f", ("x", "y.z"), ("x", "y")),
    ]
    for text, message in (
        ("", "o is empty"),
        ("SELECT 1", "expected INSERT, found SELECT"),
        ("INSERT INTO a SELECT * FROM", "the name of the source is missing"),
        ("INSERT INTO `a SELECT * FROM b", "a quotation mark has no partner"),
    ):
        with pytest.raises(OptionError, match=message):
            parse(text, "o")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"connect.mqtt.kcql": "INSERT INTO t SELECT * FROM truck/+position"},
            r"'truck/\+position': \+ stands for a whole level; did you mean truck/\+/position\?",
        ),
        (
            {"connect.mqtt.kcql": "INSERT INTO t SELECT * FROM a WITHCONVERTER=`x.Y`"},
            "no converter x.Y; there are BytesC",
        ),
        ({"connect.mqtt.hosts": "http://x"}, "'http://x' is not like tcp://host:1883"),
        ({"connect.mqtt.service.quality": "3"}, "no more than 2"),
    ],
)
def test_wrong_options(options, message):
    class Nowhere:
        port = 1

    with pytest.raises(OptionError, match=message):
        run_source(LensesMqttSource, lesson(Nowhere, **options)).__enter__()


def test_a_broker_that_is_away():
    class Nowhere:
        port = 1

    with (
        run_source(LensesMqttSource, lesson(Nowhere)) as source,
        pytest.raises(RetriableError, match=r"tcp://127.0.0.1:1: "),
    ):
        source.poll()


def test_filters():
    assert [wrong_filter(good) for good in ("a/+/b", "#", "$share/g/a/#", "+")] == [None] * 4
    assert "must be the last one" in wrong_filter("#/a")


def test_names():
    assert NO_MOSQUITTO
    for name, cls in (
        ("com.datamountaineer.streamreactor.connect.mqtt.source.MqttSourceConnector", LensesMqttSource),
        ("io.lenses.streamreactor.connect.mqtt.source.MqttSourceConnector", LensesMqttSource),
        ("mqtt-source", LensesMqttSource),
        ("io.confluent.connect.mqtt.MqttSourceConnector", ConfluentMqttSource),
        ("io.confluent.connect.mqtt.MqttSinkConnector", ConfluentMqttSink),
        ("mqtt-sink", LensesMqttSink),
    ):
        assert find_plugin(name).load() is cls
