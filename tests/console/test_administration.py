"""Brokers, access rules, users, quotas and schemas: what the pages change is what clients find."""

from __future__ import annotations

import json
import uuid

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from tests.console.conftest import ConsoleProcess

OLD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "note", "type": "string", "default": ""}]}
WRONG = {**OLD, "fields": [*OLD["fields"], {"name": "note", "type": "string"}]}


@pytest.fixture
def client(guarded: ConsoleProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": guarded.bootstrap})


def rules_of(
    client: AdminClient, name: str
) -> set[tuple[str, AclOperation, AclPermissionType, ResourcePatternType]]:
    any_rule = AclBindingFilter(
        ResourceType.TOPIC, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    rules = client.describe_acls(any_rule).result()
    return {
        (r.principal, r.operation, r.permission_type, r.resource_pattern_type)
        for r in rules
        if r.name == name
    }


def test_brokers_show_their_disks_and_change_their_options(
    guarded: ConsoleProcess, client: AdminClient
) -> None:
    brokers = guarded.data("/brokers")["brokers"]
    node = brokers[0]["id"]
    one = guarded.data(f"/brokers/{node}")
    assert one["dirs"][0]["total_bytes"] > one["dirs"][0]["usable_bytes"] > 0
    assert "Log dirs" in guarded.page(f"/brokers/{node}")
    guarded.send(f"/brokers/{node}/options", {"option": "log.cleaner.threads", "value": "3", "was": "1"})
    resource = ConfigResource(ConfigResource.Type.BROKER, str(node))
    assert client.describe_configs([resource])[resource].result()["log.cleaner.threads"].value == "3"
    option = guarded.data(f"/brokers/{node}", q="log.cleaner.threads")["options"][0]
    assert (option["source"], option["is_set"]) == ("set for a broker", True)
    late = guarded.send(
        f"/brokers/{node}/options", {"option": "log.cleaner.threads", "value": "2", "was": "1"}, 409
    )
    assert "Somebody else has set" in late.text
    guarded.send(f"/brokers/{node}/options", {"option": "log.cleaner.threads", "unset": "1"})
    guarded.send("/brokers/elect", {})
    assert "There is no broker 77" in guarded.page("/brokers/77", 404)


def test_log_levels_are_changed_while_the_broker_runs(guarded: ConsoleProcess, client: AdminClient) -> None:
    node = guarded.data("/brokers")["brokers"][0]["id"]
    path, logger = f"/brokers/{node}/levels", "barnabas.requests"
    before = next(r["level"] for r in guarded.data(path, q=logger)["loggers"] if r["name"] == logger)
    guarded.send(path, {"logger": logger, "level": "ERROR", "was": before})
    assert [r["level"] for r in guarded.data(path, q=logger)["loggers"] if r["name"] == logger] == ["ERROR"]
    late = guarded.send(path, {"logger": logger, "level": "DEBUG", "was": before}, 409)
    assert "Somebody else has set" in late.text
    assert logger in guarded.page(path)
    guarded.send(path, {"logger": logger, "level": ""})
    assert [r["level"] for r in guarded.data(path, q=logger)["loggers"] if r["name"] == logger] == [before]
    assert "is not one of" in guarded.send(path, {"logger": logger, "level": "LOUD"}, 400).text


def test_a_partition_that_cannot_move_is_refused_with_the_reason(guarded: ConsoleProcess) -> None:
    name = f"moves-{uuid.uuid4().hex[:8]}"
    guarded.post("/topics", {"name": name, "partitions": 1})
    assert "No partition is being moved" in guarded.page("/brokers/reassignments")
    refused = guarded.post("/brokers/reassignments", {"topic": name, "partition": 0, "replicas": "77"}, 409)
    assert "77" in refused["message"] or "broker" in refused["message"].lower()
    assert "is not a list of brokers" in guarded.send(
        "/brokers/reassignments", {"topic": name, "partition": "0", "replicas": "a"}, 400
    ).text  # fmt: skip


def test_rules_are_added_and_removed_and_answer_who_may_what(
    guarded: ConsoleProcess, client: AdminClient
) -> None:
    name = f"guarded-{uuid.uuid4().hex[:8]}"
    allow = {"resource": "topic", "name": name, "principal": "alice", "operation": "read"}
    guarded.send("/access/rules", allow)
    guarded.send(
        "/access/rules",
        {**allow, "name": name[:8], "pattern": "prefixed", "principal": "eve", "operation": "all"},
    )
    guarded.send("/access/rules", {**allow, "principal": "eve", "permission": "deny"})
    assert rules_of(client, name) == {
        ("User:alice", AclOperation.READ, AclPermissionType.ALLOW, ResourcePatternType.LITERAL),
        ("User:eve", AclOperation.READ, AclPermissionType.DENY, ResourcePatternType.LITERAL),
    }
    who = {
        w["principal"]: w["is_allowed"]
        for w in guarded.data("/access", name=name, operation="read")["asked"]["who"]
    }
    assert (who["User:alice"], who["User:eve"], who["User:*"]) == (True, False, False)
    who = {
        w["principal"]: w["is_allowed"]
        for w in guarded.data("/access", name=name, operation="write")["asked"]["who"]
    }
    assert (who["User:alice"], who["User:eve"]) == (False, True)
    may = guarded.data("/access", principal="alice")["asked"]["may"]
    assert [row for row in may if row["name"] == name] == [
        {"resource": "topic", "name": name, "pattern": "literal", "operations": ["read", "describe"]}
    ]
    assert "everybody else" in guarded.page("/access", name=name, operation="read")
    guarded.send("/access/rules/remove", {**allow, "pattern": "literal", "permission": "allow", "host": "*"})
    guarded.send("/access/rules/remove", {**allow, "principal": "nobody"}, 404)
    assert {principal for principal, *_ in rules_of(client, name)} == {"User:eve"}


def test_without_an_authorizer_the_page_says_so(console: ConsoleProcess) -> None:
    assert "checks no access rules" in console.page("/access")


def test_passwords_are_set_and_shown_to_nobody(guarded: ConsoleProcess, client: AdminClient) -> None:
    secret = "do-not-show-me"
    guarded.send("/access/users/set", {"user": "carol", "password": secret, "mechanism": "SCRAM-SHA-256"})
    assert client.describe_user_scram_credentials(["carol"])["carol"].result().scram_credential_infos
    page = guarded.page("/access/users")
    assert "carol" in page
    assert secret not in page
    refused = guarded.send("/access/users/set", {"user": "", "password": secret}, 400)
    assert secret not in refused.text
    assert secret not in guarded.log.read_text()
    guarded.send("/access/users/remove", {"user": "carol", "mechanism": "SCRAM-SHA-256"})
    assert "carol" not in [user["name"] for user in guarded.data("/access/users")["users"]]


def test_quotas_are_set_and_removed(guarded: ConsoleProcess) -> None:
    quota = {"user": "default", "client": "batch", "limit": "producer_byte_rate"}
    done = guarded.post("/access/quotas", {**quota, "value": 1024})
    assert done["commands"][0].startswith(
        "barnabas quota set producer_byte_rate=1024 --user default --client batch"
    )
    entity = {"client-id": "batch", "user": None}

    def mine() -> list[dict[str, float]]:
        quotas = guarded.data("/access/users")["quotas"]
        return [row["limits"] for row in quotas if row["entity"] == entity]

    assert mine() == [{"producer_byte_rate": 1024.0}]
    guarded.send("/access/quotas", {**quota, "value": ""})
    assert mine() == []
    assert "Name a user" in guarded.send("/access/quotas", {"limit": "producer_byte_rate"}, 400).text


def test_schemas_are_checked_before_they_are_registered(guarded: ConsoleProcess) -> None:
    subject = f"orders-{uuid.uuid4().hex[:8]}-value"
    guarded.send("/schemas", {"subject": subject, "kind": "AVRO", "schema": json.dumps(OLD)})
    path = f"/schemas/{subject}"
    checked = guarded.post(f"{path}/check", {"kind": "AVRO", "schema": WRONG})
    assert checked["is_compatible"] is False
    assert "note" in " ".join(checked["messages"])
    refused = guarded.send(f"{path}/versions", {"kind": "AVRO", "schema": json.dumps(WRONG)}, 409)
    assert "not compatible" in refused.text
    assert guarded.data(path)["versions"] == [1]
    assert (
        "The schema is compatible"
        in guarded.send(f"{path}/check", {"kind": "AVRO", "schema": json.dumps(NEW)}, 200).text
    )
    guarded.send(f"{path}/versions", {"kind": "AVRO", "schema": json.dumps(NEW)})
    page = guarded.data(path)
    assert (page["versions"], page["version"], page["against"]) == ([1, 2], 2, 1)
    assert any("note" in line["text"] for line in page["diff"] if line["kind"] == "add")
    guarded.send(f"{path}/level", {"level": "FULL"})
    assert guarded.data(path)["level"] == {"level": "FULL", "is_own": True}
    assert subject in guarded.page("/schemas", q=subject)
    guarded.send(f"{path}/delete", {"confirm": subject})
    assert guarded.data("/schemas", q=subject)["subjects"] == []
    guarded.page(path, 404)


def test_records_of_a_schema_are_decoded_filtered_and_written(guarded: ConsoleProcess) -> None:
    name = f"avro-{uuid.uuid4().hex[:8]}"
    guarded.post("/topics", {"name": name, "partitions": 1})
    schema = guarded.post("/schemas", {"subject": f"{name}-value", "kind": "AVRO", "schema": NEW})["id"]
    written = {"value": {"id": 7, "note": "hello"}, "value_schema": schema}
    guarded.post(f"/topics/{name}/produce", written)
    producer = Producer({"bootstrap.servers": guarded.bootstrap})
    producer.produce(name, b"\x00" + schema.to_bytes(4, "big") + b"\xff")
    producer.flush()
    records = guarded.data(f"/topics/{name}/records", filter="note like 'hell%' and id = 7")["records"]
    assert [(r["value"]["kind"], r["value"]["document"]) for r in records] == [
        ("avro", {"id": 7, "note": "hello"})
    ]
    damaged = guarded.data(f"/topics/{name}/records/0/1")["record"]["value"]
    assert damaged["kind"] == "hex"
    assert damaged["error"]
    wrong = guarded.post(f"/topics/{name}/produce", {"value": {"id": "x"}, "value_schema": schema}, 400)
    assert "does not fit schema" in wrong["message"]


def test_without_a_registry_the_page_says_so(console: ConsoleProcess) -> None:
    assert "No schema registry is known" in console.page("/schemas", 404)


def test_a_topic_leads_to_its_schemas_and_to_its_dead_letters(guarded: ConsoleProcess) -> None:
    name = f"led-{uuid.uuid4().hex[:8]}"
    for topic in (name, f"{name}-dead-letters", f"{name}-other"):
        guarded.post("/topics", {"name": topic, "partitions": 1})
    for subject in (f"{name}-value", f"{name}-shop.Order", f"{name}-other-value"):
        guarded.post(f"/schemas/{subject}/versions", {"kind": "AVRO", "schema": OLD})
    data = guarded.data(f"/topics/{name}")
    assert data["subjects"] == [f"{name}-shop.Order", f"{name}-value"]
    assert data["dead_letters"] == [f"{name}-dead-letters"]
    page = guarded.page(f"/topics/{name}")
    assert f"/schemas/{name}-value" in page
    assert f"/topics/{name}-dead-letters/records" in page
