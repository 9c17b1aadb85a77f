"""The REST proxy gives Confluent's answers: status, error code, media type and body of each request in a list.

With BARNABAS_TEST_REST=http://localhost:8082 another proxy is asked instead, for example Confluent's.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

import requests
from tests.clients.test_rest import WAIT_S, Together
from tests.differential.http_answers import cases, check


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    address = os.environ.get("BARNABAS_TEST_REST")
    if address:
        yield address.rstrip("/")
        return
    process = Together(tmp_path_factory.mktemp("rest"))
    yield f"http://{process.rest}"
    assert process.end() == 0
    assert "Traceback" not in process.log.read_text()


@pytest.mark.parametrize("case", cases("rest_answers.json"), ids=lambda case: case["name"])
def test_answers_are_confluents(url: str, case: dict[str, Any]) -> None:
    new = uuid.uuid4().hex[:8]
    cluster_row = requests.get(f"{url}/v3/clusters", timeout=WAIT_S).json()["data"][0]
    names = {"topic": f"t-{new}", "group": f"g-{new}", "cluster": cluster_row["cluster_id"]}
    for number, step in enumerate(case["steps"]):
        assert not check(url, step, names), f"step {number}: {step['call']}"
