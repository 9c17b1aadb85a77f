"""What readers may not see: rules of a file, and what they leave of keys, values and headers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnabas.console.records.decoding import Decoder
from barnabas.console.records.masking import HIDDEN, Masking, MasksError, read_masks
from barnabas.console.roles import Role

NONE = Decoder(lambda: None)
VALUE = {
    "user": "anna",
    "card": {"number": "4111111111111111", "pin": 1},
    "lines": [{"note": "a"}, {"note": None}],
}
RULES = """
# TOPIC    FIELD               HOW    ROLE
payments*  value.card.number   last4  admin
payments*  value.lines.*
payments*  headers.Authoriz*
users      key                 mark
"""


def masking(folder: Path, text: str = RULES) -> Masking:
    path = folder / "masks"
    path.write_text(text)
    return read_masks(path)


def test_fields_are_masked_and_the_rest_stays(tmp_path: Path) -> None:
    masks = masking(tmp_path).of("payments-eu", Role.OPERATE)
    shown = masks.shown("value", NONE.shown("t", "value", json.dumps(VALUE).encode(), "auto"))
    assert shown.document == {
        "user": "anna",
        "card": {"number": HIDDEN + "1111", "pin": 1},
        "lines": [{"note": HIDDEN}, {"note": None}],
    }
    assert json.loads(shown.text) == shown.document
    headers = masks.headers((("authorization", b"secret"), ("source", b"shop"), ("Authorization", None)))
    assert headers == [("authorization", HIDDEN.encode()), ("source", b"shop"), ("Authorization", None)]


def test_a_role_may_see_more_and_other_topics_are_not_touched(tmp_path: Path) -> None:
    rules = masking(tmp_path)
    shown = NONE.shown("t", "value", json.dumps(VALUE).encode(), "auto")
    as_admin = rules.of("payments-eu", Role.ADMIN).shown("value", shown)
    assert as_admin.document["card"]["number"] == "4111111111111111"
    assert as_admin.document["lines"][0] == {"note": HIDDEN}
    assert not rules.of("orders", Role.READ)


@pytest.mark.parametrize("data", [b"card 4111111111111111", b"\x00\x01", b'"4111111111111111"', b"{broken"])
def test_nothing_is_shown_where_it_is_not_known_where_the_fields_are(tmp_path: Path, data: bytes) -> None:
    masks = masking(tmp_path).of("payments", Role.READ)
    shown = masks.shown("value", NONE.shown("t", "value", data, "auto"))
    assert (shown.kind, shown.text, shown.document) == ("masked", HIDDEN, None)


@pytest.mark.parametrize("how", ["text", "hex", "base64"])
def test_other_formats_are_no_way_around(tmp_path: Path, how: str) -> None:
    assert masking(tmp_path).of("payments", Role.READ).how("value", how) == "auto"


def test_marks_tell_equal_keys_and_nothing_more(tmp_path: Path) -> None:
    masks = masking(tmp_path).of("users", Role.READ)
    first, again, other = (
        masks.shown("key", NONE.shown("t", "key", key, "auto")).text for key in (b"anna", b"anna", b"bert")
    )
    assert first == again != other
    assert "anna" not in first


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("payments", "is not TOPIC FIELD"),
        ("payments card", "does not begin with key, value or headers"),
        ("payments value..x", "does not begin with"),
        ("payments value.x shout", "is not one of hide, last4, mark"),
        ("payments value.x hide root", "is not one of operate, admin, nobody"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path: Path, line: str, reason: str) -> None:
    with pytest.raises(MasksError, match=reason):
        masking(tmp_path, f"# masks\n{line}\n")
