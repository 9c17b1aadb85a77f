"""A registry in a broker's process goes on while it gets schemas that take long, and ends when it is told to."""

from __future__ import annotations

import http.client
import json
import threading
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

from barnabas.client.registry import MEDIA_TYPE
from tests.clients.test_schema_checks import WithRegistry
from tests.support import heavy_schemas
from tests.support.registry import call

HEAVY: Any = {
    "brackets": ("AVRO", "[" * 15_000_000),
    "lists": ("JSON", '{"x":[' + "[]," * 4_000_000 + "1]}"),
    "references": ("JSON", heavy_schemas.doubling_json(60, {"type": "integer"})),
    "alternatives": ("JSON", heavy_schemas.alternatives_json(250, {"type": "integer"})),
    "unions": ("AVRO", heavy_schemas.union_avro(1_500, "int")),
}
BEFORE: Any = {
    "references": ("JSON", heavy_schemas.doubling_json(60, {"type": "string"})),
    "alternatives": ("JSON", heavy_schemas.alternatives_json(250, {"type": "string"})),
    "unions": ("AVRO", heavy_schemas.union_avro(1_500, "string")),
}


def test_heavy_schemas_stop_neither_the_broker_nor_its_end(tmp_path: Path) -> None:
    service = WithRegistry(tmp_path)
    answers: dict[str, tuple[int, Any]] = {}

    def register(subject: str, kind: str, text: str) -> None:
        body = {"schemaType": kind, "schema": text}
        answers[subject] = call(service.url, "POST", f"/subjects/{subject}/versions", body)

    try:
        for subject, (kind, text) in BEFORE.items():
            register(subject, kind, text)
            assert answers[subject][0] == 200, answers[subject]
        threads = [threading.Thread(target=register, args=(name, *HEAVY[name])) for name in HEAVY]
        for thread in threads:
            thread.start()
        assert AdminClient({"bootstrap.servers": service.bootstrap}).list_topics(timeout=60).brokers
        register("small", "AVRO", '"int"')
        assert answers["small"][0] == 200
        for thread in threads:
            thread.join()
        statuses = {name: answers[name][0] for name in HEAVY}
        expected = {"brackets": 422, "lists": 422, "references": 409, "alternatives": 409, "unions": 409}
        assert statuses == expected, {name: str(answers[name])[:300] for name in HEAVY}
        # Sent whole, so that the registry is at work when it is told to end.
        text = HEAVY["lists"][1].replace("x", "y", 1)
        last = http.client.HTTPConnection(service.url.removeprefix("http://"), timeout=120)
        headers = {"Content-Type": MEDIA_TYPE}
        last.request(
            "POST", "/subjects/again/versions", json.dumps({"schemaType": "JSON", "schema": text}), headers
        )
    finally:
        code = service.end()
    last.close()
    assert code == 0
    assert "Traceback" not in service.log.read_text()
