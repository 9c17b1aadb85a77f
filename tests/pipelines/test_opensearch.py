"""Bulk delivery to a real OpenSearch (2.x, one node); overload from a stand-in, because a real one is rarely busy."""

from __future__ import annotations

import gzip
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pyarrow as pa
import pytest

from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.kinds.targets import elasticsearch
from barnabas.pipelines.kinds.targets.base import DOCUMENT, IDENTITY, DeliveryError
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.serving.run import run_pipeline
from tests.pipelines.conftest import records_of, send
from tests.pipelines.jars import program
from tests.support.process import free_port


class OpenSearch:
    """One node in a folder of its own, which outlives restarts."""

    def __init__(self, folder: Path) -> None:
        (folder / "config").mkdir(parents=True)
        self.folder, self.port = folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        folder = self.folder
        command = [*program("Search"), str(folder), str(self.port)]
        with (folder / "out.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        give_up = time.monotonic() + 600
        while True:
            try:
                self.call("GET", "/")
                return
            except OSError:
                ended = self.process.poll() is not None or time.monotonic() > give_up
                assert not ended, (folder / "out.log").read_text()[-3000:]
                time.sleep(0.2)

    def call(self, method: str, path: str, body: object = None) -> dict:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        with urlopen(request, timeout=120) as answer:
            return json.load(answer)

    def documents(self, index: str) -> dict[str, dict]:
        self.call("POST", f"/{index}/_refresh")
        hits = self.call("GET", f"/{index}/_search?size=1000")["hits"]["hits"]
        return {hit["_id"]: hit["_source"] for hit in hits}

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenSearch]:
    server = OpenSearch(tmp_path_factory.mktemp("opensearch") / "home")
    yield server
    server.stop()


@pytest.mark.java
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_documents_and_refusals(spark, bootstrap, client, new_topic, tmp_path, search):
    source = new_topic(1)
    search.call("PUT", "/typed", {"mappings": {"properties": {"n": {"type": "integer"}}}})
    text = f"""
pipeline: {source}
source: {{topic: {source}}}
steps: [parse: {{json: all}}]
outputs:
  - {{name: typed, elasticsearch: {{url: "{search.url}", index: typed, id: "name::string"}}}}
  - {{name: plain, elasticsearch: {{url: "{search.url}", index: plain}}}}
"""

    def run(checkpoints: str):
        spec = parse_spec(text, "p.yaml")
        return run_pipeline(spec, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path / checkpoints)

    values = [b'{"name": "a", "n": 1}', b'{"name": "b", "n": "many"}', b"bad", b'{"name": "a", "n": 3}']
    send(client, source, values)
    run("first")
    assert search.documents("typed") == {"a": {"name": "a", "n": 3}}
    plain = search.documents("plain")  # where the first document made `n` a number
    topic_id = str(client.describe([source])[source].topic_id).partition("-")[0]
    assert set(plain) == {f"{topic_id}-{source}-0-{offset}" for offset in (0, 3)}
    dead = {
        row["value"]: {h["key"]: h["value"].decode() for h in row["headers"]}
        for row in records_of(client, f"{source}-dead-letters")
    }
    assert set(dead) == {values[1], b"bad"}
    assert dead[values[1]]["barnabas.step"] == "deliver elasticsearch"
    assert dead[values[1]]["barnabas.reason"].startswith(
        "mapper_parsing_exception: failed to parse field [n]"
    )
    run("once more, from the beginning")
    assert search.documents("plain") == plain
    assert search.documents("typed") == {"a": {"name": "a", "n": 3}}
    away = text.replace(search.url, f"http://127.0.0.1:{free_port()}")
    with pytest.raises(PipelineError, match=r"elasticsearch: .* does not answer: .*refused"):
        run_pipeline(parse_spec(away), once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)
    with pytest.raises(HTTPError):
        search.call("GET", "/nothing")


class Busy(BaseHTTPRequestHandler):
    """Answers 503, then 429 for each second document, then takes what comes."""

    requests: list[list[dict]]

    def do_POST(self) -> None:
        raw = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
        lines = [json.loads(line) for line in raw.splitlines()]
        Busy.requests.append(lines[1::2])
        number = len(Busy.requests)
        items = [
            {"index": {"status": 429 if number == 2 and place % 2 else 201}}
            for place in range(len(lines) // 2)
        ]
        body = json.dumps({"errors": number == 2, "items": items}).encode()
        self.send_response(503 if number == 1 else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_a_busy_server_is_asked_again():
    Busy.requests = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Busy)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        options = {"url": f"http://127.0.0.1:{server.server_port}", "index": "i", "deadline_s": 20}
        documents = [json.dumps({"n": n}) for n in range(4)]
        batch = pa.record_batch({DOCUMENT: documents, IDENTITY: ["0", "1", "2", "3"]})
        assert elasticsearch.send_batch(elasticsearch.server_of(options), options, batch) == []
        sent = [[row["n"] for row in request] for request in Busy.requests]
        assert sent == [[0, 1, 2, 3], [0, 1, 2, 3], [1, 3]]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    impatient = {**options, "deadline_s": 0}
    with pytest.raises(DeliveryError, match="does not answer"):
        elasticsearch.send_batch(elasticsearch.server_of(impatient), impatient, batch)
