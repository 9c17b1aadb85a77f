"""Keys with schemas through a SQL server: written by its queries and read by Confluent's client, and the other way round."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.pipelines.readers import consumed
from tests.pipelines.test_server import until
from tests.pipelines.test_sql_server import EARLIEST, SqlServer
from tests.support.registry import RegistryProcess, own_registry

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]


class Schemed(SqlServer):
    """A server with a registry."""

    def __init__(self, folder: Path, bootstrap: str, registry: RegistryProcess) -> None:
        super().__init__(folder, bootstrap)
        self.words = ("sql", "start", "--registry", registry.url, "--data")
        self.schemas = SchemaRegistryClient({"url": registry.url})

    def context(self, topic: str) -> SerializationContext:
        return SerializationContext(topic, MessageField.KEY)

    def avro_keys(self, topic: str, cut: int = 0) -> list[Any]:
        """The keys of a topic, without the bytes at their ends that are windows."""
        decode = AvroDeserializer(self.schemas)
        raw = [record.key for record in consumed(self.bootstrap, topic)]
        return [decode(key[: len(key) - cut], self.context(topic)) for key in raw if key is not None]


@pytest.fixture
def server(tmp_path: Path, bootstrap: str) -> Iterator[Schemed]:
    with own_registry(bootstrap, tmp_path, "sql-keys-server") as registry:
        made = Schemed(tmp_path / "sql", bootstrap, registry)
        made.start()
        yield made
        made.stop(signal.SIGKILL)


def _read_what_queries_wrote(server: Schemed, out: str) -> None:
    """What one query has written, others read: a message, a key of two columns, and the window after a key."""
    server.statements(
        f"CREATE STREAM plain WITH (kafka_topic='{out}-a', key_format='KAFKA') AS SELECT * FROM protos EMIT CHANGES;"
        f"CREATE STREAM pair (c BIGINT) WITH (kafka_topic='{out}-p', key_format='AVRO', value_format='JSON');"
        f"CREATE STREAM whose WITH (kafka_topic='{out}-w', key_format='KAFKA') AS SELECT n, who FROM pair "
        "PARTITION BY n EMIT CHANGES;"
        f"CREATE STREAM minute (who STRING KEY, c BIGINT) WITH (kafka_topic='{out}-m', key_format='AVRO', "
        "value_format='JSON', window_type='TUMBLING', window_size='1 MINUTE');"
        f"CREATE STREAM began WITH (kafka_topic='{out}-s', key_format='KAFKA') AS SELECT who, WINDOWSTART AS at, c "
        "FROM minute PARTITION BY who EMIT CHANGES;"
        f"CREATE STREAM bare WITH (kafka_topic='{out}-x', format='PROTOBUF_NOSR') AS SELECT * FROM orders EMIT CHANGES;"
        f"CREATE STREAM dressed WITH (kafka_topic='{out}-y', key_format='KAFKA', value_format='JSON') AS SELECT * FROM bare "
        "EMIT CHANGES;"
        "INSERT INTO orders (who, n) VALUES ('cleo', 5);"
        "INSERT INTO bare (who, n) VALUES ('dora', 300);",
        **EARLIEST,
    )
    until(lambda: len(consumed(server.bootstrap, f"{out}-a")) == 5)
    plain = [record.key for record in consumed(server.bootstrap, f"{out}-a")]
    assert plain == [b"ada", b"bob", b"ada", None, b"cleo"]
    until(lambda: b'"WHO":"cleo"' in b"".join(r.value or b"" for r in consumed(server.bootstrap, f"{out}-w")))
    until(lambda: any(b"1700000040000" in (r.value or b"") for r in consumed(server.bootstrap, f"{out}-s")))
    until(lambda: len(consumed(server.bootstrap, f"{out}-y")) == 6)
    bare = {(record.key, record.value) for record in consumed(server.bootstrap, f"{out}-x")}
    messages = {"ada": b"\x08\x01", "cleo": b"\x08\x05", "dora": b"\x08\xac\x02"}
    assert bare >= {(b"\n" + bytes([len(who)]) + who.encode(), value) for who, value in messages.items()}
    dressed = {(record.key, record.value) for record in consumed(server.bootstrap, f"{out}-y")}
    assert dressed >= {
        (b"ada", b'{"N":1}'),
        (b"cleo", b'{"N":5}'),
        (b"dora", b'{"N":300}'),
        (None, b'{"N":4}'),
    }


def test_keys_with_schemas(server: Schemed, new_topic) -> None:
    orders, out = new_topic(1), new_topic(1)
    write = AvroSerializer(server.schemas, '"string"')
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for key, value in (("ada", b'{"n": 1}'), ("bob", b'{"n": 2}'), ("ada", b'{"n": 3}'), (None, b'{"n": 4}')):
        raw = None if key is None else write(key, server.context(orders))
        producer.produce(orders, value, raw, timestamp=1_700_000_040_000)
    assert producer.flush(60) == 0
    server.statements(
        f"CREATE STREAM orders (who STRING KEY, n INT) WITH (kafka_topic='{orders}', key_format='AVRO', "
        "value_format='JSON');"
        f"CREATE STREAM copied WITH (kafka_topic='{out}') AS SELECT who, n FROM orders EMIT CHANGES;"
        f"CREATE STREAM numbered WITH (kafka_topic='{out}-n') AS SELECT n, who FROM orders PARTITION BY n EMIT CHANGES;"
        f"CREATE TABLE totals WITH (kafka_topic='{out}-t') AS SELECT who, SUM(n) AS s FROM orders GROUP BY who EMIT CHANGES;"
        f"CREATE TABLE minutes WITH (kafka_topic='{out}-m') AS SELECT who, COUNT(*) AS c FROM orders "
        "WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY who EMIT CHANGES;"
        f"CREATE TABLE spans WITH (kafka_topic='{out}-o', value_format='AVRO') AS SELECT who, COUNT(*) AS c, "
        "WINDOWSTART AS begun, WINDOWEND AS ended FROM orders WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY who EMIT CHANGES;"
        f"CREATE TABLE pairs WITH (kafka_topic='{out}-p') AS SELECT who, n, COUNT(*) AS c FROM orders "
        "GROUP BY who, n EMIT CHANGES;"
        f"CREATE STREAM texts WITH (kafka_topic='{out}-j', key_format='JSON_SR') AS SELECT * FROM orders EMIT CHANGES;"
        f"CREATE STREAM protos WITH (kafka_topic='{out}-b', key_format='PROTOBUF') AS SELECT * FROM orders EMIT CHANGES;",
        **EARLIEST,
    )
    until(lambda: len(consumed(server.bootstrap, out)) == 4)
    assert server.avro_keys(out) == ["ada", "bob", "ada"]
    assert server.schemas.get_latest_version(f"{out}-key").schema.schema_str == '"string"'
    assert until(lambda: sorted(server.avro_keys(f"{out}-n"))) == [1, 2, 3, 4]
    until(lambda: server.rows("SELECT who, s FROM totals WHERE who = 'ada';") == [["ada", 4]])
    assert {*server.avro_keys(f"{out}-t")} == {"ada", "bob"}
    until(lambda: server.rows("SELECT who, c FROM minutes WHERE who = 'ada';") == [["ada", 2]])
    assert {*server.avro_keys(f"{out}-m", 8)} == {"ada", "bob"}
    read = AvroDeserializer(server.schemas)
    wanted = {"C": 2, "BEGUN": 1_700_000_040_000, "ENDED": 1_700_000_100_000}
    until(
        lambda: (
            wanted
            in [read(r.value, server.context(f"{out}-o")) for r in consumed(server.bootstrap, f"{out}-o")]
        )
    )
    until(lambda: len(server.rows("SELECT * FROM pairs;")) >= 3)
    assert {"WHO": "bob", "N": 2} in server.avro_keys(f"{out}-p")
    until(lambda: len(consumed(server.bootstrap, f"{out}-j")) == 4)
    decode = JSONDeserializer('{"type": "string"}', schema_registry_client=server.schemas)
    keys = [record.key for record in consumed(server.bootstrap, f"{out}-j") if record.key is not None]
    assert [decode(key, server.context(f"{out}-j")) for key in keys] == ["ada", "bob", "ada"]
    _read_what_queries_wrote(server, out)
    shown = server.shell("-e", f"PRINT '{orders}' FROM BEGINNING LIMIT 1;")
    assert 'key: "ada", value: {"n": 1}' in shown.stdout, shown.stdout + shown.stderr
    assert "cannot have" in server.refused(
        f"CREATE STREAM bad (k MAP<STRING, INT> KEY, n INT) WITH (kafka_topic='{orders}', key_format='AVRO', "
        "value_format='JSON');"
    )
