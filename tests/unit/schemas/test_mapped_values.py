"""Values of records as Confluent's REST proxy writes them."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.schemas.codecs.protobuf import ProtobufCodec
from barnabas.schemas.codecs.schemas import make_codec, mapped_value

FIELDS = """ message M {{
  {0} int32 my_num = 1; {0} string other_text = 2; repeated int64 big_ones = 3; {0} M in_side = 4;
  oneof a_choice {{ string one = 5; int32 two = 6; }} map<string, M> by_name = 7; repeated M more_of = 8; {1}
}}"""


@pytest.mark.parametrize(
    ("syntax", "label", "more", "default"),
    [
        ("proto3", "", "optional int32 may_be = 9;", {}),
        ("proto2", "optional", "optional int32 may_be = 9 [default = 5];", {"mayBe": 5}),
    ],
)
def test_protobuf_has_json_names_and_defaults(
    syntax: str, label: str, more: str, default: dict[str, Any]
) -> None:
    """As JsonFormat.printer().includingDefaultValueFields(): nothing that is missing by choice, in messages inside too."""
    codec = ProtobufCodec(f'syntax = "{syntax}";' + FIELDS.format(label, more), ())
    missing = {"otherText": "", "bigOnes": [], "byName": {}, "moreOf": [], **default}
    empty = {"myNum": 0, **missing}
    value = {"my_num": 1, "in_side": {}, "two": 0, "by_name": {"a": {}}, "more_of": [{"my_num": 2}]}
    data = codec.encode(value)
    want = {
        **missing,
        "myNum": 1,
        "inSide": empty,
        "two": 0,
        "byName": {"a": empty},
        "moreOf": [{**empty, "myNum": 2}],
    }
    assert mapped_value(codec, data) == want
    assert codec.decode(data) == value
    assert mapped_value(codec, codec.encode({})) == empty


def test_other_formats_are_written_as_they_are() -> None:
    codec = make_codec(
        "AVRO", '{"type": "record", "name": "R", "fields": [{"name": "my_num", "type": "int"}]}', ()
    )
    assert mapped_value(codec, codec.encode({"my_num": 1})) == {"my_num": 1}
