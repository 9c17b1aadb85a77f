"""Transforms and predicates by Kafka's class names, with records of and without schemas."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from barnabas.connect import DataError, Schema, SinkRecord, SourceRecord, schemas
from barnabas.connect.converters.avro_schemas import FromAvro, ToAvro, from_avro, to_avro
from barnabas.connect.converters.confluent import plain_logical
from barnabas.connect.converters.json import JsonConverter
from barnabas.connect.converters.json_schemas import schema_of_json_schema, to_json_schema
from barnabas.connect.errors import OptionError
from barnabas.connect.records import Header
from barnabas.connect.transforms.chain import make_chain
from barnabas.connect.transforms.finding import PREDICATES, TRANSFORMS, predicate_class, transform_class
from barnabas.connect.transforms.javatime import JavaFormat

KAFKA = "org.apache.kafka.connect.transforms."
PERSON = schemas.struct({"id": schemas.INT32, "name": schemas.OPTIONAL_STRING}, "person")


def chain(*steps: dict[str, str], predicates: dict[str, dict[str, str]] | None = None) -> Any:
    config: dict[str, str] = {"transforms": ",".join(f"t{n}" for n in range(len(steps)))}
    for number, step in enumerate(steps):
        config |= {f"transforms.t{number}.{key}": value for key, value in step.items()}
    config["predicates"] = ",".join(predicates or {})
    for alias, options in (predicates or {}).items():
        config |= {f"predicates.{alias}.{key}": value for key, value in options.items()}
    steps_made = make_chain(config)

    def run(record: Any) -> Any:
        for step in steps_made:
            record = step(record)
            if record is None:
                return None
        return record

    return run


def one(kind: str, **options: str) -> Any:
    return chain({"type": KAFKA + kind, **{key.replace("_", "."): text for key, text in options.items()}})


def record(value: Any, schema: Schema | None = None, **more: Any) -> SourceRecord:
    return SourceRecord("topic", value, value_schema=schema, **more)


def test_the_lessons_chain_makes_a_number_of_a_field_the_key() -> None:
    run = chain(
        {"type": KAFKA + "ValueToKey", "fields": "id"}, {"type": KAFKA + "ExtractField$Key", "field": "id"}
    )
    changed = run(record({"id": 7, "name": "a"}, PERSON))
    assert (changed.key, changed.key_schema) == (7, schemas.INT32)
    assert run(record({"id": 8})).key == 8
    with pytest.raises(DataError, match="Field does not exist: id"):
        run(record({}, schemas.struct({"other": schemas.INT32})))
    with pytest.raises(DataError, match="Only Map objects supported"):
        run(record("text"))


def test_fields_are_wrapped_renamed_masked_inserted_and_flattened() -> None:
    assert one("HoistField$Value", field="a")(record(1)).value == {"a": 1}
    changed = one("ReplaceField$Value", exclude="name", renames="id:key")(
        record({"id": 1, "name": "a"}, PERSON)
    )
    assert changed.value == {"key": 1}
    assert [field.name for field in changed.value_schema.fields] == ["key"]
    assert one("MaskField$Value", fields="id,name")(record({"id": 5, "name": "a"})).value == {
        "id": 0,
        "name": "",
    }
    assert one("MaskField$Value", fields="name", replacement="*")(record({"name": "a"})).value == {
        "name": "*"
    }
    insert = one(
        "InsertField$Value", topic_field="t", static_field="s!", static_value="x", timestamp_field="at"
    )
    changed = insert(record({"id": 1, "name": None}, PERSON, timestamp_ms=1_000))
    assert changed.value["t"] == "topic"
    assert changed.value["at"] == dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)
    assert not changed.value_schema.by_name["s"].schema.optional
    assert changed.value_schema.by_name["t"].schema.optional
    with pytest.raises(DataError, match="sink connectors"):
        one("InsertField$Value", offset_field="o")(record({}))
    assert one("InsertField$Value", offset_field="o")(SinkRecord("t", {}, offset=9)).value == {"o": 9}
    nested = schemas.struct({"a": schemas.struct({"b": PERSON}, optional=True)})
    changed = one("Flatten$Value", delimiter="_")(record({"a": {"b": {"id": 1, "name": "x"}}}, nested))
    assert changed.value == {"a_b_id": 1, "a_b_name": "x"}
    assert changed.value_schema.by_name["a_b_id"].schema.optional
    assert one("Flatten$Value")(record({"a": {"b": [1]}})).value == {"a.b": [1]}


def test_nested_fields_are_extracted_with_the_second_syntax() -> None:
    run = one("ExtractField$Value", field="a.`b.c`", field_syntax_version="V2")
    assert run(record({"a": {"b.c": 3}})).value == 3
    assert run(record({"a": None})).value is None


@pytest.mark.parametrize(
    ("spec", "value", "cast"),
    [
        ("int8", 300, 44),
        ("int32", "12", 12),
        ("float64", 1, 1.0),
        ("boolean", "TRUE", True),
        ("string", True, "true"),
        ("int64", dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC), 1000),
        ("string", b"\x01", "AQ=="),
    ],
)
def test_values_are_cast(spec: str, value: Any, cast: Any) -> None:
    assert one("Cast$Value", spec=spec)(record(value)).value == cast
    assert one("Cast$Value", spec=f"f:{spec}")(record({"f": value})).value == {"f": cast}


def test_casts_change_schemas_and_refuse_what_does_not_fit() -> None:
    changed = one("Cast$Value", spec="id:string")(record({"id": 1, "name": None}, PERSON))
    assert changed.value == {"id": "1", "name": None}
    assert changed.value_schema.by_name["id"].schema.type == "string"
    with pytest.raises(DataError, match="out of range"):
        one("Cast$Value", spec="int8")(record("300"))
    with pytest.raises(OptionError, match="spec"):
        one("Cast$Value", spec="id:decimal")


def test_times_are_converted() -> None:
    text = one("TimestampConverter$Value", target_type="string", format="yyyy-MM-dd HH:mm:ss.SSS", field="at")
    schema = schemas.struct({"at": schemas.TIMESTAMP_SCHEMA})
    changed = text(record({"at": dt.datetime(2017, 10, 2, 5, 4, 12, 923000, tzinfo=dt.UTC)}, schema))
    assert changed.value == {"at": "2017-10-02 05:04:12.923"}
    assert changed.value_schema.by_name["at"].schema == schemas.STRING
    unix = one(
        "TimestampConverter$Value",
        target_type="unix",
        unix_precision="seconds",
        format="dd/MMM/yyyy:HH:mm:ss Z",
    )
    assert unix(record("02/Oct/2017:07:04:12 +0200")).value == 1506920652
    assert one("TimestampConverter$Value", target_type="Date")(record(86_400_000)).value == dt.date(
        1970, 1, 2
    )
    with pytest.raises(DataError, match="does not match pattern"):
        unix(record("yesterday"))
    assert JavaFormat("yyyyMMdd'T'HHmm").parse("20171002T0704") == dt.datetime(
        2017, 10, 2, 7, 4, tzinfo=dt.UTC
    )
    assert JavaFormat("h:mm a").format(dt.datetime(2017, 1, 1, 13, 5, tzinfo=dt.UTC)) == "1:05 PM"


def test_records_are_routed_and_filtered() -> None:
    assert one("RegexRouter", regex="(t)op(.*)", replacement="$2-$1")(record(1)).topic == "ic-t"
    assert one("RegexRouter", regex="x", replacement="y")(record(1)).topic == "topic"
    routed = one("TimestampRouter")(record(1, timestamp_ms=1506923052012))
    assert routed.topic == "topic-20171002"
    run = chain(
        {"type": KAFKA + "Filter", "predicate": "dead", "negate": "true"},
        predicates={"dead": {"type": KAFKA + "predicates.RecordIsTombstone"}},
    )
    assert run(record(1)) is None
    assert run(record(None)).topic == "topic"
    with pytest.raises(OptionError, match="predicates does not name it"):
        chain({"type": KAFKA + "Filter", "predicate": "dead"})


def test_headers_are_inserted_dropped_and_made_of_fields() -> None:
    changed = one("InsertHeader", header="n", value_literal="5")(record({"a": 1}))
    assert changed.headers == (Header("n", 5, schemas.INT64),)
    changed = one("HeaderFrom$Value", fields="id", headers="h", operation="move")(
        record({"id": 1, "name": "a"}, PERSON)
    )
    assert changed.headers[0].value == 1
    assert changed.value == {"name": "a"}
    assert one("DropHeaders", headers="h")(changed).headers == ()
    run = chain(
        {"type": KAFKA + "Filter", "predicate": "has"},
        predicates={"has": {"type": KAFKA + "predicates.HasHeaderKey", "name": "h"}},
    )
    assert run(changed) is None
    run = chain(
        {"type": KAFKA + "Filter", "predicate": "is"},
        predicates={"is": {"type": KAFKA + "predicates.TopicNameMatches", "pattern": "t.*"}},
    )
    assert run(record(1)) is None


def test_expressions_filter_and_compute() -> None:
    keep = chain({"type": "Filter", "condition": "amount > 10 and upper(name) = 'A'"})
    assert keep(record({"amount": 11, "name": "a"})) is not None
    assert keep(record({"amount": 9, "name": "a"})) is None
    compute = chain({"type": "Compute", "fields": "total = amount * 2, big = amount > 10"})
    assert compute(record({"amount": 11})).value == {"amount": 11, "total": 22, "big": True}
    with pytest.raises(OptionError, match="condition"):
        chain({"type": "Filter", "condition": "amount >"})


def test_metadata_of_schemas_is_set() -> None:
    changed = one("SetSchemaMetadata$Value", schema_name="n", schema_version="3")(record({"id": 1}, PERSON))
    assert (changed.value_schema.name, changed.value_schema.version) == ("n", 3)
    assert changed.value_schema.fields == PERSON.fields


def test_every_class_can_be_loaded_and_unknown_ones_are_refused() -> None:
    for name in TRANSFORMS:
        kind, _ = transform_class(name if name.startswith(KAFKA + "Reg") else f"{name}$Value")
        assert kind.doc
    for name in PREDICATES:
        assert predicate_class(name).doc
    with pytest.raises(OptionError, match=r"did you mean org.apache.kafka.connect.transforms.ValueToKey"):
        one("ValueTKey", fields="a")
    with pytest.raises(OptionError, match=r"\$Key, \$Value"):
        one("ExtractField", field="a")


@pytest.mark.parametrize("enveloped", [True, False])
def test_json_goes_there_and_back(enveloped: bool) -> None:
    schema = schemas.struct(
        {
            "id": schemas.INT64,
            "price": schemas.decimal(2),
            "day": schemas.DATE_SCHEMA,
            "at": schemas.TIMESTAMP_SCHEMA.as_optional(),
            "tags": schemas.array(schemas.STRING),
            "data": schemas.OPTIONAL_BYTES,
            "counts": schemas.map_of(schemas.STRING, schemas.INT32),
        },
        "order",
    )
    value = {
        "id": 1,
        "price": Decimal("12.50"),
        "day": dt.date(2017, 10, 2),
        "at": None,
        "tags": ["a"],
        "data": b"\x00",
        "counts": {"x": 1},
    }
    converter = JsonConverter()
    converter.configure({"schemas.enable": str(enveloped).lower()}, False)
    data = converter.encoder("t")(schema, value, [])
    found_schema, value_read = converter.decoder("t")(data, [])
    if enveloped:
        assert (found_schema, value_read) == (schema, value)
    else:
        assert found_schema is None
        assert value_read["price"] == "BOI="
        assert value_read["day"] == 17441
    assert converter.encoder("t")(None, None, []) is None
    with pytest.raises(DataError):
        converter.encoder("t")(schema, {"id": "x"}, [])
    with pytest.raises(DataError):
        converter.decoder("t")(b"{", [])


ORDER = schemas.struct(
    {
        "id": schemas.INT64,
        "small": schemas.INT8,
        "price": schemas.decimal(2),
        "day": schemas.DATE_SCHEMA,
        "at": schemas.TIMESTAMP_SCHEMA.as_optional(),
        "tags": schemas.array(schemas.STRING),
        "counts": schemas.map_of(schemas.STRING, schemas.INT32),
        "who": schemas.struct({"name": schemas.OPTIONAL_STRING}, "example.Person"),
    },
    "example.Order",
)
VALUE = {
    "id": 1,
    "small": 3,
    "price": Decimal("12.50"),
    "day": dt.date(2017, 10, 2),
    "at": None,
    "tags": ["a"],
    "counts": {"x": 1},
    "who": {"name": "Ann"},
}


def test_schemas_go_to_avro_and_back_with_their_values() -> None:
    about = ToAvro().schema(ORDER)
    assert FromAvro().schema(about) == ORDER
    parsed = fastavro.parse_schema(about)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed, VALUE)  # fastavro's own logical types are the witness
    plain = fastavro.parse_schema(plain_logical(about))
    mine = io.BytesIO()
    fastavro.schemaless_writer(mine, plain, to_avro(ORDER, VALUE))
    assert mine.getvalue() == out.getvalue()
    mine.seek(0)
    assert from_avro(ORDER, fastavro.schemaless_reader(mine, plain, None)) == VALUE


def test_schemas_go_to_json_schema_and_back() -> None:
    assert schema_of_json_schema(to_json_schema(ORDER)) == ORDER
    foreign = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": ["null", "string"]}}}
    schema = schema_of_json_schema(foreign)
    assert schema is not None
    assert schema.by_name["a"].schema == schemas.INT64.as_optional()
    assert schema_of_json_schema({"type": "object", "properties": {"a": {"oneOf": [{}, {}]}}}) is None
