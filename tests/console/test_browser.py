"""The console in a real browser: every page, wide and narrow, light and dark, by keyboard, with and without scripts."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.console.conftest import ConsoleProcess
from tests.console.seeing import LOOKS, NARROW, WIDE, Seen, axe_source, chromium, need_chromium

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

HOSTILE = '<script>alert("1")</script><img src=x onerror=alert(2)>'
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
NEWER = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": ""}]}
PATHS = (
    "", "/topics", "/topics?internal=1", "/topics/create", "/topics/seen", "/topics/seen/options", "/topics/seen/changes",
    "/topics/seen/records", "/topics/seen/records?filter=id%20%3E%201", "/topics/seen/records?filter=broken%20%3D",
    "/topics/seen/records?key=a", "/topics/seen/records/0/0", "/topics/seen/produce", "/topics/absent",
    "/topics/seen/compare?with=hostile",
    "/topics/hostile/records", "/topics/hostile/records/0/0", "/groups", "/groups/seen-group", "/groups/seen-group/reset",
    "/brokers", "/brokers/1", "/brokers/reassignments", "/schemas", "/schemas/seen-value", "/access", "/access?name=seen",
    "/access?principal=alice", "/access/users", "/bin", "/transactions", "/topics/seen/producers", "/brokers/1/levels",
    "/connectors", "/sql", "/mirrors", "/logs", "/logs/seen", "/logs/hostile", "/logs/seen/around?partition=0&offset=3",
    "/clients", "/clients/metrics", "/access/tokens",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    need_chromium()
    with chromium() as chromium_browser:
        yield chromium_browser


@pytest.fixture(scope="module")
def axe() -> str:
    return axe_source()


def fill(console: ConsoleProcess) -> None:
    """Something on every page of a cluster: topics with records, groups, a rule, a user and a quota."""
    for name, partitions in (("seen", 3), ("hostile", 1)):
        console.post("/topics", {"name": name, "partitions": partitions, "options": {"retention.ms": "-1"}})
    producer = Producer({"bootstrap.servers": console.bootstrap})
    for number in range(60):
        producer.produce("seen", json.dumps({"id": number, "country": "DE"}), f"key-{number}", number % 3)
    producer.produce("hostile", HOSTILE, HOSTILE, 0, headers=[(HOSTILE, HOSTILE.encode())])
    producer.flush()
    for group in ("seen-group", HOSTILE):
        consumer = Consumer({"bootstrap.servers": console.bootstrap, "group.id": group})
        consumer.commit(
            offsets=[TopicPartition("seen", number, 5) for number in range(3)], asynchronous=False
        )
        consumer.close()
    rule = {"resource": "topic", "name": "seen", "principal": "alice", "operation": "read"}
    console.post("/access/rules", rule)
    console.post("/access/users/set", {"user": "alice", "password": "secret"})
    console.post("/access/quotas", {"user": "alice", "limit": "producer_byte_rate", "value": 1000})


@pytest.fixture(scope="module")
def filled(guarded: ConsoleProcess, browser: Any) -> ConsoleProcess:
    """A cluster with something on every page, schemas and a topic in the bin too."""
    fill(guarded)
    for schema in (ORDER, NEWER):
        guarded.post("/schemas/seen-value/versions", {"kind": "AVRO", "schema": schema})
    rests = {"retention.ms": "-1", "barnabas.topic.bin.ms": "3600000"}
    guarded.post("/topics", {"name": "binned", "partitions": 1, "options": rests})
    guarded.post("/topics/binned/delete", {"confirm": "binned"})
    return guarded


def window(
    browser: Any, width: int, theme: str = "light", lang: str = "en-GB", *, scripts: bool = True
) -> Seen:
    return Seen(browser, width, theme, lang, scripts=scripts)


CHINESE = (
    "",
    "/topics",
    "/topics/seen/records",
    "/topics/seen/changes",
    "/groups/seen-group",
    "/brokers/1",
    "/access",
)


def test_every_page_fits_and_follows_the_rules_wide_and_narrow_light_and_dark(
    filled: ConsoleProcess, browser: Any, axe: str
) -> None:
    seen = window(browser, WIDE)
    for path in PATHS:
        seen.turn(WIDE, "light")
        seen.page.goto(filled.home + path)
        assert seen.page.locator("h1").count() == 1, path
        seen.page.evaluate("for (const one of document.querySelectorAll('main details')) one.open = true")
        seen.check()
        seen.check_rules(axe)
        seen.turn(NARROW, "dark")
        seen.check()
        seen.check_rules(axe, *LOOKS)
    seen.close()


def test_pages_fit_in_chinese_too(filled: ConsoleProcess, browser: Any) -> None:
    seen = window(browser, NARROW, "dark", "zh-CN")
    for path in CHINESE:
        seen.page.goto(filled.home + path)
        assert seen.page.locator("html").get_attribute("lang") == "zh"
        seen.check()
    seen.close()


def test_a_topic_is_made_filled_and_deleted_with_the_keyboard_alone(
    filled: ConsoleProcess, browser: Any
) -> None:
    name = f"typed-{uuid.uuid4().hex[:8]}"
    seen = window(browser, WIDE)
    page = seen.page

    def press(label: str, role: str = "link") -> None:
        """Tab to what is called so, and press Enter."""
        for _ in range(200):
            page.keyboard.press("Tab")
            page.wait_for_load_state()
            called = page.evaluate(
                "(() => { const e = document.activeElement; return [e.tagName, e.textContent.trim() || e.name || '']; })()"
            )
            if called[1].startswith(label) and (called[0] == "A") == (role == "link"):
                page.keyboard.press("Enter")
                return
        raise AssertionError(f"Tab does not reach {label}")

    page.goto(filled.home)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    press("Topics")
    page.wait_for_url("**/topics")
    press("Create a topic")
    page.wait_for_url("**/topics/create")
    page.keyboard.type(name)  # the field of the name has the focus already
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/topics/{name}")
    assert f"The topic {name} is created" in page.locator("[role=status]").first.inner_text()
    press("Produce")
    page.wait_for_url("**/produce")
    page.locator("#value").focus()
    page.keyboard.type("typed value")
    press("Send", "button")
    page.wait_for_url("**/records/*/0")
    assert "typed value" in page.locator("main").inner_text()
    press("Change")
    page.wait_for_url("**/changes")
    press("Delete the topic", "summary")
    page.locator("details[open] input[name=confirm]").focus()
    page.keyboard.type(name)
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics")
    assert f"The topic {name} is deleted" in page.locator("[role=status]").first.inner_text()
    seen.check()
    seen.close()


def test_lists_follow_what_is_typed(filled: ConsoleProcess, browser: Any) -> None:
    seen = window(browser, WIDE)
    seen.page.goto(f"{filled.home}/topics")
    seen.page.locator("#q").press_sequentially("host")
    expect(seen.page.locator("#list tbody tr")).to_have_count(1)
    assert "q=host" in seen.page.url
    seen.check()
    seen.close()


def test_a_live_tail_and_a_search_show_records_as_they_come(filled: ConsoleProcess, browser: Any) -> None:
    seen = window(browser, WIDE)
    page = seen.page
    page.goto(f"{filled.home}/topics/hostile/records")
    page.get_by_role("button", name="Follow live").click()
    page.get_by_text("Following 1 partitions.").wait_for()
    assert page.locator("#records tr").count() == 0
    producer = Producer({"bootstrap.servers": filled.bootstrap})
    producer.produce("hostile", HOSTILE + "live", HOSTILE, 0)
    producer.flush()
    page.locator("#records tr").first.wait_for()
    assert "<script>alert" in page.locator("#records tr").first.inner_text()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Follow live").wait_for()
    page.goto(f"{filled.home}/topics/seen/records")
    page.locator("#filter").fill("id >= 58")
    page.get_by_role("button", name="Search to the end").click()
    expect(page.locator("#progress")).to_contain_text("100 %")
    assert page.locator("#records tr").count() == 2
    page.locator("#filter").fill("id >=")
    page.get_by_role("button", name="Search to the end").click()
    page.get_by_text("The filter cannot be understood").wait_for()
    seen.check()
    seen.close()


def test_records_are_written_of_an_example_and_of_a_template_that_is_kept(
    filled: ConsoleProcess, browser: Any
) -> None:
    seen = window(browser, WIDE)
    page = seen.page
    filled.post("/topics", {"name": "templated", "partitions": 2})
    filled.post("/schemas/templated-value/versions", {"kind": "AVRO", "schema": ORDER})
    page.goto(f"{filled.home}/topics/templated/produce")
    page.get_by_role("link", name="An example of templated-value").click()
    assert json.loads(page.locator("#value").input_value()) == {"id": 0}
    page.locator("#value").fill('{"id": {{n}}}')
    page.locator("#key").fill("key-{{n}}")
    page.locator("#count").fill("20")
    page.get_by_label("Fill in gaps").check()
    page.get_by_role("button", name="Save this template").click()
    page.get_by_role("button", name="Send", exact=True).click()
    page.get_by_text("20 records are written").wait_for()
    records = filled.data("/topics/templated/records")["records"]
    made = sorted((record["value"]["document"]["id"], record["key"]["text"]) for record in records)
    assert made == [(number, f"key-{number}") for number in range(1, 21)]
    page.goto(f"{filled.home}/topics/templated/produce")
    page.get_by_role("link", name="key-{{n}}").click()
    assert page.locator("#value").input_value() == '{"id": {{n}}}'
    assert page.locator("#count").input_value() == "20"
    seen.check()
    seen.close()


def test_language_and_colours_are_switched_and_stay(filled: ConsoleProcess, browser: Any) -> None:
    seen = window(browser, WIDE)
    page = seen.page
    page.goto(f"{filled.home}/topics")
    page.get_by_role("button", name="中文").click()
    assert page.locator("h1").inner_text() == "主题"
    page.get_by_role("button", name="深色").click()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 29)"
    page.goto(f"{filled.home}/brokers")
    assert page.locator("h1").inner_text() == "代理"
    seen.check()
    seen.close()


def test_pages_work_without_scripts(filled: ConsoleProcess, browser: Any) -> None:
    seen = window(browser, WIDE, scripts=False)
    page = seen.page
    page.goto(f"{filled.home}/topics")
    page.locator("#q").fill("seen")
    page.get_by_role("button", name="Find").click()
    assert page.locator("#list tbody tr").count() == 1
    page.goto(f"{filled.home}/topics/seen/records")
    page.locator("#filter").fill("id >= 58")
    page.get_by_role("button", name="Show", exact=True).click()
    assert page.locator("#records tr").count() == 2
    page.goto(f"{filled.home}/groups/seen-group/reset")
    page.locator("#to").select_option("end")
    page.get_by_role("button", name="Preview").click()
    assert "3 partitions would move" in page.locator("main").inner_text()
    seen.close()
