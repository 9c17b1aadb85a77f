"""What is around a running app: its code is watched, its state put aside, a server finds it, its stores are read."""

from __future__ import annotations

import json
import textwrap
import time
from pathlib import Path

import pytest

from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.views.columns import Column
from barnabas.pipelines.views.lookup import Asked, Reader
from barnabas.pipelines.views.store import Note, ViewFile
from barnabas.pipelines.views.stores import apply_changes, store_file, store_shape
from barnabas.streams import (
    App,
    Processor,
    Record,
    Serde,
    StreamsBuilder,
    StreamsError,
    TopologyTestDriver,
)
from barnabas.streams.lookups import StoreReader
from barnabas.streams.resetting import put_state_aside
from barnabas.streams.watching import changed, stamps

CODE = """
    from barnabas.streams import App

    app = App("words", bootstrap="there:9092")
    app.stream("lines").group_by(lambda k, v: v).count(name="counts").to_stream().to("out")
    nothing = 5
"""


def test_a_change_of_code_is_seen(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("a = 1")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "data").mkdir()
    before = stamps(tmp_path)
    (tmp_path / "data" / "made.py").touch()
    assert changed(before, stamps(tmp_path)) is None
    (tmp_path / "package" / "more.py").touch()
    assert changed(before, stamps(tmp_path)) == "more.py"
    (tmp_path / "app.py").unlink()
    assert changed(before, stamps(tmp_path)) in ("more.py", "app.py")


def test_state_is_put_aside(tmp_path: Path) -> None:
    (tmp_path / "words").mkdir()
    assert put_state_aside(str(tmp_path), "other") is None
    dry = put_state_aside(str(tmp_path), "words", dry=True)
    assert dry is not None
    assert (tmp_path / "words").exists()
    aside = put_state_aside(str(tmp_path), "words")
    assert aside is not None
    assert aside.is_dir()
    assert not (tmp_path / "words").exists()
    with pytest.raises(StreamsError, match="not on this machine"):
        put_state_aside("s3a://bucket", "words")


def test_a_server_runs_an_app_of_its_code(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text(textwrap.dedent(CODE))
    spec = parse_spec("pipeline: mine\nstreams: words:app\ntrigger: 2 seconds\n", "words.yaml", tmp_path)
    assert (spec.name, spec.bootstrap, spec.dead_letters) == ("mine", "there:9092", "mine-dead-letters")
    assert spec.outputs[0].stores is not None
    assert dict(spec.outputs[0].stores.layouts) == {"counts": "table"}
    for named, message in (
        ("words:nothing", "not an App"),
        ("words:ap", "has no 'ap'"),
        ("gone:app", "no module"),
    ):
        with pytest.raises(PipelineError, match=f"words.yaml:2.*{message}"):
            parse_spec(f"pipeline: mine\nstreams: {named}\n", "words.yaml", tmp_path)
    with pytest.raises(PipelineError, match="--code"):
        parse_spec("pipeline: mine\nstreams: words:app\n", "words.yaml")


def test_rows_of_a_store_are_those_of_its_last_change(tmp_path: Path) -> None:
    path = store_file(tmp_path, "by day/hour")
    shape = store_shape("app/by day/hour", "id", "windows")
    thing = '{"$":"data","of":"T","v":{"n":1}}'
    first = ('["a",1]', f"[[0,10,{thing},3],[10,20,2,15]]")
    for changes in ([first, ('"b"', "[[0,10,5,1]]")], [('"b"', None), ('["a",1]', "[[10,20,3,15]]")]):
        with ViewFile(path) as file, file.transaction():
            file.adopt(shape)
            apply_changes(file, shape, "windows", changes)
            file.set_note(Note(0))
        rows = Reader(path).find(Asked()).rows
    assert rows == [
        '{"key":"[\\"a\\",1]","window":"1970-01-01T00:00:00.010000Z","window_end":"1970-01-01T00:00:00.020000Z",'
        '"value":3,"at":"1970-01-01T00:00:00.015000Z"}'
    ]
    whole = f'{{"$":"row","k":1,"v":{thing}}}'
    assert Column("value", "kept").fragment(whole) == '{"n": 1}'


def test_keys_that_are_shown_alike_have_rows_of_their_own(tmp_path: Path) -> None:
    path = store_file(tmp_path, "counts")
    shape = store_shape("app/counts", "id", "table")
    for changes in ([("5", "[1,0]"), ('"5"', "[2,0]"), ('"a"', "[3,0]")], [("5", "[4,0]"), ('"a"', None)]):
        with ViewFile(path) as file, file.transaction():
            file.adopt(shape)
            apply_changes(file, shape, "table", changes)
            file.set_note(Note(0))
    store = StoreReader("counts", path, {})
    assert (store.get(5), store.get("5"), store.get("a")) == (4, 2, None)
    assert dict(store.items()) == {5: 4, "5": 2}
    assert [json.loads(row)["key"] for row in Reader(path).find(Asked(key=("5",))).rows] == ["5", "5"]
    assert Reader(path).find(Asked(limit=1)).next is not None
    store.close()


def test_an_entry_is_found_as_long_as_its_store_keeps_it(tmp_path: Path) -> None:
    path = store_file(tmp_path, "seen")
    now_ms = time.time_ns() // 1_000_000
    shape = store_shape("app/seen", "id", "key_value", 60_000)
    with ViewFile(path) as file, file.transaction():
        file.adopt(shape)
        kept = {'"old"': f"[1,{now_ms - 60_000}]", '"new"': f"[2,{now_ms - 1000}]"}
        apply_changes(file, shape, "key_value", kept.items())
        file.set_note(Note(0))
    store = StoreReader("seen", path, {})
    assert dict(store.items()) == {"new": 2}
    assert "old" not in store
    store.close()


def test_a_micro_batch_has_an_upper_bound() -> None:
    app = App("words", batch_max=5)
    app.stream("lines").to("out")
    assert [source.options for source in app.spec().sources] == [{"maxOffsetsPerTrigger": "5"}]
    with pytest.raises(StreamsError, match="at least 1 record"):
        App("words", batch_max=0)


def test_only_a_named_store_can_be_asked_for() -> None:
    app = App("words")
    app.stream("lines").group_by(lambda k, v: v).count().to_stream().to("out")
    with pytest.raises(StreamsError, match="give a table a name"):
        app.store("counts")


class Odd(Processor[str, str]):
    """Forwards what no topic can take."""

    def process(self, record: Record[str, str]) -> None:
        if record.value == "time":
            self.context.forward(record.put(timestamp=1.5))
        else:
            self.context.forward(record.key, record.value, timestamp=1 << 62)


def test_what_no_topic_takes_is_a_dead_letter() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.process(Odd).to("out")
    stream.to("bad", value=Serde("odd", lambda value: value, bytes.decode))
    with TopologyTestDriver(builder.build()) as driver:
        for value in ("time", "late"):
            driver.pipe_input("in", "k", value)
        reasons = [letter.reason for letter in driver.dead_letters]
    assert "not 1.5" in reasons[0]
    assert "not 4611686018427387904" in reasons[1]
    builder = StreamsBuilder()
    builder.stream("in").to("bad", value=Serde("odd", lambda value: value, bytes.decode))
    with TopologyTestDriver(builder.build()) as driver:
        driver.pipe_input("in", "k", b"v")
        assert "serialize returned a str, not bytes" in driver.dead_letters[0].reason
