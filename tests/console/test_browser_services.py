"""The console in a real browser over what its pages need beside a cluster of Barnabas: connectors, links, lineage; and over
Apache Kafka. Wide and narrow, light and dark, by axe's rules and by keyboard."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from barnabas.testing import Broker
from tests.console.conftest import ConsoleProcess, running
from tests.console.seeing import NARROW, WIDE, Seen, axe_source, chromium, need_chromium
from tests.console.test_apache_kafka import WITH_RULES, await_coordinator
from tests.console.test_browser import PATHS, fill
from tests.support.apache_kafka import present_kafka
from tests.support.cluster import until
from tests.support.connect_worker import Worker, worker_options

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

FILES = "org.apache.kafka.connect.file.FileStream"
NEEDS_BARNABAS = ("/schemas", "/transactions/", "/bin")
"""What Apache Kafka has no part of, and what needs a registry."""
WITH_SERVICES = (
    "/connectors", "/connectors/reads", "/connectors/fails", "/connectors/reads/config",
    "/connector-plugins", f"/connector-plugins/{FILES}SinkConnector", "/mirrors", "/mirrors/east",
    "/mirrors/east/promote", "/lineage", "/topics/lines/lineage", "/topics/orders/lineage", "/topics/lines/records",
    "/logs/lines", "/sql", "/pipelines",
)  # fmt: skip


@pytest.fixture(scope="module")
def seen() -> Iterator[Seen]:
    need_chromium()
    with chromium() as browser:
        seen = Seen(browser, WIDE)
        yield seen
        seen.close()


@pytest.fixture(scope="module")
def axe() -> str:
    return axe_source()


@pytest.mark.java
def test_the_same_pages_over_apache_kafka(seen: Seen, axe: str, tmp_path: Path) -> None:
    with present_kafka(tmp_path, WITH_RULES) as where:
        await_coordinator(where, 2e9)
        with running(where, tmp_path / "log") as console:
            fill(console)
            paths = [path for path in PATHS if not path.startswith(NEEDS_BARNABAS)]
            seen.walk(console.home, [*paths, "/bin", "/lineage", "/topics/seen/lineage"], axe, keyboard=True)
            page = seen.page
            seen.turn(WIDE, "light")
            page.goto(f"{console.home}/topics/seen/records")
            page.locator("#filter").fill("id >= 58")
            page.get_by_role("button", name="Show", exact=True).click()
            assert page.locator("#records tr").count() == 2
            page.get_by_role("button", name="Follow live").click()
            page.get_by_text("Following 3 partitions.").wait_for()
            producer = Producer({"bootstrap.servers": where})
            producer.produce("seen", json.dumps({"id": 99}), "late", 0)
            producer.flush()
            page.locator("#records tr").first.wait_for()
            assert "late" in page.locator("#records tr").first.inner_text()


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    folder = tmp_path_factory.mktemp("services")
    with Broker() as source, Broker() as broker:
        worker = Worker(worker_options(broker.bootstrap, "seen"))
        try:
            (folder / "in.txt").write_text("one\ntwo\n")
            worker.create(
                "reads", connector_class=f"{FILES}SourceConnector", file=str(folder / "in.txt"), topic="lines"
            )
            worker.create(
                "fails", connector_class=f"{FILES}SinkConnector", file="/no/such/folder/out", topics="lines"
            )
            producer = Producer({"bootstrap.servers": source.bootstrap})
            producer.produce("orders", b"1")
            producer.flush()
            with running(broker.bootstrap, folder / "log", "--connect", worker.url) as console:
                console.post("/mirrors", {"name": "east", "source": source.bootstrap, "topics": "orders"})
                worker.until("fails", "FAILED")
                until(lambda: console.data("/mirrors/east")["topics"], "the link copies its topic")
                yield console
        finally:
            worker.stop()


def test_pages_of_services_follow_the_rules(services: ConsoleProcess, seen: Seen, axe: str) -> None:
    seen.walk(services.home, WITH_SERVICES, axe, keyboard=True)
    services.send("/mirrors/east/promote", {"move": "failover"})
    seen.walk(services.home, ("/mirrors/east", "/mirrors/east/return"), axe, keyboard=True)


def test_pages_of_services_fit_in_chinese(services: ConsoleProcess, seen: Seen) -> None:
    window = Seen(seen.context.browser, NARROW, "dark", "zh-CN")
    for path in WITH_SERVICES:
        window.page.goto(services.home + path)
        assert window.page.locator("html").get_attribute("lang") == "zh"
        window.check()
    window.close()


def test_the_lineage_is_walked_from_topic_to_topic(services: ConsoleProcess, seen: Seen) -> None:
    page: Any = seen.page
    seen.turn(WIDE, "light")
    page.goto(f"{services.home}/lineage")
    page.locator(".drawing a", has_text="lines").first.click()
    page.wait_for_url("**/topics/lines/lineage")
    page.locator(".drawing a", has_text="reads").first.click()
    page.wait_for_url("**/connectors/reads")
    seen.check()
