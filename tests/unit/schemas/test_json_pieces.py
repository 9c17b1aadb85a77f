"""Large JSON that is parsed and written in pieces has the same value, and the same errors, as in one piece."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from barnabas.schemas import json_pieces, json_text
from barnabas.schemas.json_text import BadJson, dump_json, parse_json

CHARACTERS = ["a", '"', "\\", "[", "]", "{", "}", ",", ":", "ü", "\n", "\u2028", "𝄞"]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_pieces, "PIECE_BYTES", 20)
    monkeypatch.setattr(json_pieces, "PIECE_ITEMS", 3)
    monkeypatch.setattr(json_text, "IN_PIECES_FROM_BYTES", 0)


def made_up(random: random.Random, depth: int) -> Any:
    kind = random.randrange(8 if depth else 5)
    if kind < 3:
        return random.choice([None, True, False, 0, -1.5, 1e300, random.randrange(10**9)])
    if kind < 5:
        return "".join(random.choices(CHARACTERS, k=random.randrange(8)))
    if kind < 7:
        return [made_up(random, depth - 1) for _ in range(random.randrange(9))]
    names = {"".join(random.choices(CHARACTERS, k=4)) for _ in range(random.randrange(9))}
    return {name: made_up(random, depth - 1) for name in names}


def outcome(raw: bytes, *, in_pieces: bool, monkeypatch: pytest.MonkeyPatch) -> Any:
    """("value", JSON) or ("error", "")."""
    monkeypatch.setattr(json_text, "IN_PIECES_FROM_BYTES", 0 if in_pieces else 1 << 40)
    try:
        return "value", json.dumps(parse_json(raw))
    except BadJson:
        return "error", ""


@pytest.mark.parametrize("seed", range(150))
def test_pieces_give_the_value_of_the_whole(seed: int) -> None:
    source = random.Random(seed)
    value = made_up(source, 6)
    raw = json.dumps(value, indent=source.choice([None, 1, "\t"]), ensure_ascii=seed % 2 == 0).encode()
    assert parse_json(raw) == value
    assert dump_json(value) == json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


@pytest.mark.parametrize("seed", range(150))
def test_damaged_texts_are_refused_in_pieces_as_in_the_whole(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = random.Random(seed)
    whole = bytearray(json.dumps(made_up(source, 6)).encode())
    for _ in range(40):
        damaged = bytearray(whole)
        for _ in range(source.randrange(1, 3)):
            place = source.randrange(len(damaged) + 1)
            kind = source.randrange(3)
            if kind == 0:
                damaged[place:place] = source.choice([b",", b"[", b"]", b"{", b"}", b'"', b"0", b" ", b":"])
            elif kind == 1:
                del damaged[place : place + source.randrange(1, 4)]
            else:
                damaged[place : place + 1] = source.choice([b",", b"]", b"}", b"\xff", b"\\"])
        raw = bytes(damaged)
        expected = outcome(raw, in_pieces=False, monkeypatch=monkeypatch)
        assert outcome(raw, in_pieces=True, monkeypatch=monkeypatch) == expected, raw


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (
            b'{"a":[1,2,3,4,5,6,7,8,9,10,11,12],\n"b":[1,2,3,4,5,6,7,8,9,x]}',
            "Expecting value at line 2, column 24",
        ),
        (b'{"a":[1,2,3,4,5,6,7,8,9,10,11,12],"a":1}', "'a' appears twice"),
        (b'{"a":1,"b":[1,2,3,4,5,6,7,8,9,10,11,12],"b":[1,2,3,4,5,6,7,8,9,10,11]}', "'b' appears twice"),
        (b"[" * 301, "more than 300 levels"),
        (b'["1","2","3","4","5","6","7",[1,2,3,4,5,6,"\xff",1,2,3]]', r"not UTF-8 text \(byte 43\)"),
        (b'["1","2","3","4","5","6","7",[1,2,3,4,5,6,NaN,1,2,3]]', "NaN is not JSON"),
        (b'["1","2","3","4","5","6","7",' + b"1" * 5000 + b",1]", "integer"),
    ],
)
def test_errors_name_the_place_in_the_whole(raw: bytes, reason: str) -> None:
    with pytest.raises(BadJson, match=reason):
        parse_json(raw)


def test_too_many_objects_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_pieces, "CONTAINERS_MAX", 10)
    assert parse_json(b"[" + b"[]," * 8 + b"1]") == [[]] * 8 + [1]
    with pytest.raises(BadJson, match="more than 10 objects and lists"):
        parse_json(b"[" + b"{}," * 10 + b"1]")
