"""What a running topology keeps is looked up: by key from another program, over HTTP, and after its file was lost."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc
import pytest

from barnabas.cli.main import run
from barnabas.pipelines.compiler.queries import stop_file
from barnabas.pipelines.serving.managed import Managed
from barnabas.pipelines.serving.run import looking
from barnabas.pipelines.serving.supervisor import Supervisor
from barnabas.streams import App, tumbling
from tests.pipelines.conftest import send
from tests.pipelines.readers import consumed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@dataclass
class Seen:
    """How often a word was seen, and where first."""

    times: int
    first: str


async def upper(line: str) -> str:
    await asyncio.sleep(0)
    return line.upper()


def counted(app: App, topic: str) -> None:
    words = app.stream(topic).flat_map_values(str.split).group_by(lambda k, v: v)
    words.count(name="counts").to_stream().to(f"{topic}-counts")
    words.windowed_by(tumbling("1 day")).count(name="by day").to_stream(lambda k, v: k.key).to(
        f"{topic}-days"
    )
    lines = app.stream(topic)
    lines.map_values(upper, in_flight=2).to(f"{topic}-upper")
    lines.map_batches(lambda table: pc.utf8_reverse(table["value"])).to(f"{topic}-back")
    words.aggregate(
        lambda: Seen(0, ""), lambda k, v, seen: Seen(seen.times + 1, seen.first or v), name="seen"
    )


def told_over_http(app: App, bootstrap: str, folder: Path, capsys, *words: str) -> tuple[int, str]:
    """What `streams get` prints when it asks the running app: exit code and standard output."""
    supervisor = Supervisor(bootstrap)
    supervisor.watch(Managed(app.spec(), str(folder / app.name), stop_file(folder)))
    urls: list[str] = []
    with looking("127.0.0.1:0", lambda text: urls.append(text.rpartition(" ")[2]))(supervisor):
        capsys.readouterr()
        code = run(["streams", words[0], *words[1:], "--url", urls[0]])
    return code, capsys.readouterr().out


def test_stores_are_looked_up_and_rebuilt(spark, bootstrap, client, new_topic, tmp_path, capsys):
    t = new_topic()
    app = App(t, tasks=2)
    counted(app, t)
    counts = app.store("counts", checkpoint_dir=tmp_path)
    send(client, t, [b"to be or not to be", b"that is"])
    app.run(once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)
    assert dict(counts.items()) == {"to": 2, "be": 2, "or": 1, "not": 1, "that": 1, "is": 1}
    assert (counts.get("be"), counts.get("none"), counts["to"]) == (2, None, 2)
    assert app.store("seen", checkpoint_dir=tmp_path).get("be") == Seen(2, "be")
    ((window, number),) = app.store("by day", checkpoint_dir=tmp_path).fetch("be")
    assert (window.end - window.start, number) == (86_400_000, 2)

    for path in (tmp_path / t).glob("*/stores/counts*"):
        path.unlink()
    send(client, t, [b"to go"])
    app.run(once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)
    assert dict(counts.items()) == {"to": 3, "be": 2, "or": 1, "not": 1, "that": 1, "is": 1, "go": 1}

    lines = [b"to be or not to be", b"that is", b"to go"]
    assert [r.value for r in consumed(bootstrap, f"{t}-upper")] == [line.upper() for line in lines]
    assert [r.value for r in consumed(bootstrap, f"{t}-back")] == [line[::-1] for line in lines]
    code, text = told_over_http(app, bootstrap, tmp_path, capsys, "get", f"{t}/seen", "be", "--json")
    assert (code, json.loads(text)["rows"][0]["value"]) == (0, {"times": 2, "first": "be"})
    assert told_over_http(app, bootstrap, tmp_path, capsys, "get", f"{t}/counts", "none")[0] == 1
    code, text = told_over_http(app, bootstrap, tmp_path, capsys, "stores", t, "--json")
    assert [row["name"] for row in json.loads(text)] == ["by day", "counts", "seen"]
