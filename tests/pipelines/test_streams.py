"""Topologies on Spark, with a broker and a reader that others wrote. What they have to make is said by the test driver."""

from __future__ import annotations

import pytest

from barnabas.client.blocking import NewTopic
from barnabas.streams import App, StreamsBuilder, TopologyTestDriver, tumbling
from tests.pipelines.conftest import send
from tests.pipelines.readers import consumed
from tests.support.admin import KEPT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def counted(builder: StreamsBuilder, topic: str) -> None:
    words = builder.stream(topic).flat_map_values(lambda line: line.lower().split())
    words.group_by(lambda k, v: v).count(name="counts").to_stream().to(f"{topic}-counts")
    lengths = words.map_values(lambda v: 10 // (len(v) - 1)).group_by_key()
    lengths.windowed_by(tumbling("1 day")).reduce(max).to_stream(lambda k, v: k.key).to(f"{topic}-largest")
    words.filter(lambda v: v.startswith("q")).to(lambda k, v: f"{topic}-{v[0]}")


def test_words_are_counted_once_through_restarts(spark, bootstrap, client, new_topic, tmp_path):
    t, parts = new_topic(), (["To be or not to be"] * 3, ["that is the question", "a letter", "be"])
    client.create_topics([NewTopic(f"{t}-q", 1, configs=KEPT)])
    app = App(t, tasks=1)
    counted(app, t)
    with TopologyTestDriver(app.topology) as driver:
        for lines in parts:
            send(client, t, [line.encode() for line in lines])
            app.run(once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)
            for line in lines:
                driver.pipe_input(t, None, line)
        wanted = {name: driver.read_output(f"{t}-{name}") for name in ("counts", "largest")}
        assert len(driver.dead_letters) == 1
    for name, records in wanted.items():
        found = [(r.key, r.value) for r in consumed(bootstrap, f"{t}-{name}")]
        assert sorted(found) == sorted((r.key and r.key.encode(), str(r.value).encode()) for r in records)
    letters = consumed(bootstrap, f"{t}-dead-letters")
    assert {letter.value for letter in letters} == {b"a letter", b"that is the question"}
