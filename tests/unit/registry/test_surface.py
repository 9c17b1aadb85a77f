"""What each call of the registry's API does beside the usual case: modes, settings, ids, references, deletion, tags."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.registry.test_api import INT, LONG, STRING, Api

RECORD = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
WIDER = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int"}]}'
PROTO = 'syntax = "proto3"; message M { string b = 2 [deprecated = true, (x) = 1]; string a = 1; }'


@pytest.fixture
def api() -> Api:
    return Api()


def code(answer: tuple[int, Any]) -> int:
    return int(answer[1]["error_code"])


def test_import_keeps_ids_and_versions(api: Api) -> None:
    assert api("PUT", "/mode/a", {"mode": "IMPORT"}) == (200, {"mode": "IMPORT"})
    assert code(api.register("a", INT)) == 42205  # an id is needed
    assert api.register("a", INT, id=40, version=7)[1] | {"guid": ""} == {"id": 40, "version": 7, "guid": ""}
    assert api.register("a", INT, id=40, version=7)[0] == 200
    assert code(api.register("a", STRING, id=40, version=8)) == 42207  # the id belongs to another schema
    assert api.register("a", STRING, id=50, version=9)[0] == 200  # nothing has to suit
    assert api("GET", "/subjects/a/versions") == (200, [7, 9])
    assert api("PUT", "/mode/a", {"mode": "READWRITE"})[0] == 200
    assert code(api.register("a", LONG, id=60)) == 42205
    assert api.register("b", LONG)[1]["id"] == 51  # behind the highest that was given
    assert code(api("PUT", "/mode/a", {"mode": "IMPORT"})) == 42205  # there are versions
    assert code(api("PUT", "/mode", {"mode": "IMPORT"})) == 42205
    assert api("PUT", "/mode/a?force=true", {"mode": "IMPORT"})[0] == 200


def test_read_only(api: Api) -> None:
    api.register("a", INT)
    wider = {"READONLY": LONG, "READONLY_OVERRIDE": '"float"', "FORWARD": '"float"'}
    for mode, schema in wider.items():
        assert api("PUT", "/mode", {"mode": mode})[0] == 200
        assert code(api.register("a", schema)) == 42205
        assert code(api("DELETE", "/subjects/a")) == 42205
        assert code(api("PUT", "/config/a", {"compatibility": "NONE"})) == 42205
        assert api("GET", "/subjects/a/versions/1")[0] == 200
        assert api("POST", "/compatibility/subjects/a/versions/latest", {"schema": schema})[0] == 200
        assert api.register("a", INT)[0] == 200  # it is there
        api("PUT", "/mode/a", {"mode": "READWRITE"})
        assert api.register("a", schema)[0] == (422 if mode == "READONLY_OVERRIDE" else 200)
        assert api("DELETE", "/mode/a") == (200, {"mode": "READWRITE"})
    assert api("GET", "/mode")[1] == {"mode": "FORWARD"}
    assert code(api("GET", "/mode/a")) == 40409
    assert api("GET", "/mode/a?defaultToGlobal=true")[1] == {"mode": "FORWARD"}
    api("PUT", "/mode/a", {"mode": "READONLY"})
    assert api("DELETE", "/mode?recursive=true")[0] == 200
    assert api("GET", "/mode")[1] == {"mode": "READWRITE"}
    assert code(api("GET", "/mode/a")) == 40409


@pytest.mark.parametrize(
    ("level", "steps"),
    [
        ("BACKWARD", "int long float double"),
        ("BACKWARD_TRANSITIVE", "int long float double"),
        ("FORWARD", "double float long int"),
        ("FORWARD_TRANSITIVE", "double float long int"),
        ("FULL", "string bytes"),
        ("FULL_TRANSITIVE", "string bytes"),
        ("NONE", "int string boolean"),
    ],
)
def test_levels(api: Api, level: str, steps: str) -> None:
    assert api("PUT", "/config/a", {"compatibility": level})[0] == 200
    for step in steps.split():
        assert api.register("a", json.dumps(step))[0] == 200, step
    last = steps.split()[-1]
    if level != "NONE":
        wrong = "boolean"
        answer = api.register("a", json.dumps(wrong))
        assert (answer[0], code(answer)) == (409, 409)
        body = {"schema": json.dumps(wrong)}
        verdict = api("POST", "/compatibility/subjects/a/versions/latest?verbose=true", body)[1]
        assert verdict["is_compatible"] is False
        text = " ".join(verdict["messages"])
        assert "errorType:'" in text
        assert f"{{compatibility: '{level}'}}" in text
        assert f"{{oldSchema: '\"{last}\"'}}" in text
        assert "oldSchemaVersion: " in text
        assert api("POST", "/compatibility/subjects/a/versions", body)[1] == {"is_compatible": False}


def test_only_the_last_version_counts_unless_transitive(api: Api) -> None:
    optional = '{"type":"record","name":"R","fields":[{"name":"b","type":"string","default":""}]}'
    for level, status in (("BACKWARD", 200), ("BACKWARD_TRANSITIVE", 409)):
        api("PUT", f"/config/{level}", {"compatibility": level})
        assert (
            api.register(level, '{"type":"record","name":"R","fields":[{"name":"b","type":"int"}]}')[0] == 200
        )
        assert api.register(level, '{"type":"record","name":"R","fields":[]}')[0] == 200
        assert api.register(level, optional)[0] == status
        versions = api("POST", f"/compatibility/subjects/{level}/versions", {"schema": optional})[1]
        assert versions == {"is_compatible": status == 200}


def test_settings_are_merged_and_served(api: Api) -> None:
    rule = {"name": "r", "kind": "CONDITION", "type": "CEL", "mode": "WRITE", "expr": "true"}
    api("PUT", "/config", {
        "compatibility": "NONE",
        "defaultMetadata": {"properties": {"owner": "nobody", "x": "1"}},
        "overrideMetadata": {"properties": {"site": "here"}},
        "defaultRuleSet": {"domainRules": [rule]},
        "overrideRuleSet": {"domainRules": [{**rule, "name": "last"}]},
    })  # fmt: skip
    assert api("PUT", "/config/a", {"normalize": True})[1] == {"normalize": True}
    config = api("GET", "/config/a?defaultToGlobal=true")[1]
    assert config["compatibilityLevel"] == "NONE"
    assert config["normalize"] is True
    metadata = {"properties": {"owner": "me", "site": "there"}}
    assert api.register("a", RECORD, metadata=metadata)[0] == 200
    version = api("GET", "/subjects/a/versions/1")[1]
    assert version["metadata"]["properties"] == {"owner": "me", "x": "1", "site": "here"}
    assert [row["name"] for row in version["ruleSet"]["domainRules"]] == ["r", "last"]
    api.register("a", WIDER, ruleSet={"domainRules": [{**rule, "expr": "false"}]})
    version = api("GET", "/subjects/a/versions/2")[1]
    assert [(row["name"], row["expr"]) for row in version["ruleSet"]["domainRules"]] == [
        ("r", "false"),
        ("last", "true"),
    ]
    assert api("GET", "/subjects/a/metadata?key=owner&value=me")[1]["version"] == 2  # metadata is inherited
    assert [row["version"] for row in api("GET", "/schemas?ruleType=CEL")[1]] == [1, 2]
    assert api("GET", "/schemas?ruleType=OTHER")[1] == []
    assert [row["version"] for row in api("GET", "/schemas?latestOnly=true")[1]] == [2]
    assert api("DELETE", "/config/a")[0] == 200
    assert code(api("GET", "/config/a")) == 40408
    assert api("DELETE", "/config")[1]["compatibilityLevel"] == "NONE"
    assert api("GET", "/config")[1]["compatibilityLevel"] == "BACKWARD"


def test_an_alias_leads_to_its_subject(api: Api) -> None:
    api.register("real", INT)
    assert api("PUT", "/config/other", {"alias": "real"})[0] == 200
    assert api("GET", "/subjects/other/versions/latest")[1]["subject"] == "real"
    assert api("POST", "/subjects/other", {"schema": INT})[1]["subject"] == "real"
    assert {row["subject"] for row in api("GET", "/schemas?aliases=true&subjectPrefix=other")[1]} <= {
        "real",
        "other",
    }


def test_ids_and_guids(api: Api) -> None:
    registered = api.register("a", INT)[1]
    assert api.register(":.other:b", INT)[1]["guid"] == registered["guid"]
    by_guid = api("GET", f"/schemas/guids/{registered['guid']}")[1]
    assert (by_guid["schema"], by_guid["guid"]) == (INT, registered["guid"])
    owners = api("GET", f"/schemas/guids/{registered['guid']}/ids")[1]
    assert {(row["context"], row["id"]) for row in owners} == {(".", 1), (".other", 1)}
    assert api("GET", "/schemas/guids/00000000-0000-0000-0000-000000000000")[0] == 404
    assert api("GET", "/schemas/guids/none")[0] in (404, 422)
    assert api("GET", "/schemas/ids/1/schema") == (200, "int")
    assert api("GET", "/schemas/ids/1/subjects") == (200, ["a"])
    assert api("GET", "/schemas/ids/1/versions") == (200, [{"subject": "a", "version": 1}])
    api.register("b", STRING)
    assert api("GET", "/schemas/ids/1?fetchMaxId=true")[1]["maxId"] == 2
    assert api("GET", "/schemas/types")[1] == ["JSON", "PROTOBUF", "AVRO"] or set(
        api("GET", "/schemas/types")[1]
    ) == {"AVRO", "JSON", "PROTOBUF"}


def test_references(api: Api) -> None:
    api.register("r", RECORD)
    uses = '{"type":"record","name":"U","fields":[{"name":"r","type":"R"}]}'
    reference = {"name": "R", "subject": "r", "version": 1}
    assert code(api.register("u", uses)) == 42201
    assert code(api.register("u", uses, references=[{**reference, "version": 9}])) == 42201
    assert api.register("u", uses, references=[{**reference, "version": -1}])[1]["id"] == 2
    assert api("GET", "/subjects/u/versions/1")[1]["references"] == [reference]
    assert api("GET", "/subjects/r/versions/1/referencedby") == (200, [2])
    assert api("POST", "/subjects/u", {"schema": uses, "references": [reference]})[1]["id"] == 2
    whole = api("GET", "/schemas/ids/2?format=resolved")[1]["schema"]
    assert json.loads(whole)["fields"][0]["type"]["name"] == "R"
    assert code(api("DELETE", "/subjects/r/versions/1")) == 42206
    assert code(api("DELETE", "/subjects/r")) == 42206
    assert api("DELETE", "/subjects/u") == (200, [1])
    assert api("DELETE", "/subjects/r") == (200, [1])
    assert api("GET", "/schemas/ids/2/schema")[0] == 200  # records of before are still read
    assert code(api("DELETE", "/subjects/r?permanent=true")) == 42206
    assert api("DELETE", "/subjects/u?permanent=true") == (200, [1])
    assert api("DELETE", "/subjects/r?permanent=true") == (200, [1])
    assert code(api("GET", "/schemas/ids/2")) == 40403


def test_deletion(api: Api) -> None:
    api("PUT", "/config", {"compatibility": "NONE"})
    for kind in (INT, LONG, STRING):
        api.register("a", kind)
    assert code(api("DELETE", "/subjects/a/versions/2?permanent=true")) == 40407
    assert api("DELETE", "/subjects/a/versions/2") == (200, 2)
    assert code(api("DELETE", "/subjects/a/versions/2")) == 40406
    assert code(api("GET", "/subjects/a/versions/2")) == 40402
    assert api("GET", "/subjects/a/versions/2?deleted=true")[1]["schema"] == LONG
    assert api("GET", "/subjects/a/versions")[1] == [1, 3]
    assert api("GET", "/subjects/a/versions?deleted=true")[1] == [1, 2, 3]
    assert api("GET", "/subjects/a/versions?deletedOnly=true")[1] == [2]
    assert api("GET", "/subjects/a/versions?deleted=true&deletedAsNegative=true")[1] == [1, -2, 3]
    assert code(api("POST", "/subjects/a", {"schema": LONG})) == 40403
    assert api("POST", "/subjects/a?deleted=true", {"schema": LONG})[1]["version"] == 2
    assert api.register("a", LONG)[1] | {"guid": ""} == {"id": 2, "version": 4, "guid": ""}  # it keeps its id
    assert api("DELETE", "/subjects/a/versions/latest") == (200, 4)
    assert code(api("DELETE", "/subjects/a?permanent=true")) == 40405
    assert api("DELETE", "/subjects/a") == (200, [1, 3])
    assert code(api("DELETE", "/subjects/a")) == 40404
    assert api("GET", "/subjects")[1] == []
    assert api("GET", "/subjects/")[1] == []
    assert api("DELETE", "/subjects/a?permanent=true") == (200, [1, 2, 3, 4])
    assert api("GET", "/subjects?deleted=true")[1] == []
    assert api.register("a", '"boolean"')[1]["id"] == 4  # an id is given once
    assert api("GET", "/subjects/a/versions/-1")[1]["version"] == 1


def test_tags(api: Api) -> None:
    api.register("a", RECORD)
    entity = {"entityPath": "R.a", "entityType": "sr_field"}
    body = {"tagsToAdd": [{"schemaEntity": entity, "tags": ["PII"]}]}
    answer = api("POST", "/subjects/a/versions/1/tags", body)
    assert answer[0] == 200, answer
    version = api("GET", "/subjects/a/versions/latest?findTags=PII")[1]
    assert json.loads(version["schema"])["fields"][0]["confluent:tags"] == ["PII"]
    assert version["version"] == 2
    removed = {"tagsToRemove": body["tagsToAdd"]}
    assert api("POST", "/subjects/a/versions/2/tags", removed)[0] == 200
    assert "confluent:tags" not in api("GET", "/subjects/a/versions/latest")[1]["schema"]


def test_forms(api: Api) -> None:
    spaced = '{"name": "R", "type": "record", "doc": "x", "fields": [{"type": {"type": "int"}, "name": "a"}]}'
    assert api.register("a", RECORD)[1]["id"] == 1
    assert code(api("POST", "/subjects/a", {"schema": spaced})) == 40403
    assert (
        api("POST", "/subjects/a?normalize=true", {"schema": spaced.replace('"doc": "x", ', "")})[1]["id"]
        == 1
    )
    assert api.register("p", PROTO, schemaType="PROTOBUF")[0] == 200
    plain = api("GET", "/subjects/p/versions/1?format=ignore_extensions")
    assert "(x)" not in str(plain[1])
    assert api("GET", "/subjects/p/versions/1?format=serialized")[1]["schema"].isascii()
    assert code(api("GET", "/subjects/p/versions/1?format=other")) == 42201
    again = PROTO.replace(
        "string b = 2 [deprecated = true, (x) = 1]; string a = 1;",
        "string a = 1; string b = 2 [(x) = 1, deprecated = true];",
    )
    assert api("POST", "/subjects/p?normalize=true", {"schema": again, "schemaType": "PROTOBUF"})[0] in (
        200,
        404,
    )
    api("PUT", "/config/n", {"normalize": True})
    first = api.register("n", PROTO, schemaType="PROTOBUF")[1]["id"]
    assert api.register("n", again, schemaType="PROTOBUF")[1]["id"] == first


def test_about(api: Api) -> None:
    assert api("GET", "/") == (200, {})
    assert "version" in api("GET", "/v1/metadata/version")[1]
