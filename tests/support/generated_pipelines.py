"""Pipelines and records from a seed, for comparisons of the two ways in which records are made."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Final

TYPES: Final = {
    "id": "long",
    "count": "int",
    "price": "double",
    "rate": "double",
    "name": "string",
    "kind": "string",
    "ok": "boolean",
    "at": "timestamp",
}
NAMES: Final = list(TYPES)
TEXTS: Final = [
    "", " ", "a", "A b ", "order", "refund", "x%y", "é", "日本", "\U0001f600", 'say "hi"', "back\\slash", "tab\t", "line\n",
    "\r\f\b", "\u001f", "\u007f", "\u2028", "</script>", "null", "true", "12", "-0", "1.50", "1e5", "ORDER-1", "ß", "İ",
    "a,b", "'",
]  # fmt: skip
NUMBERS: Final = [
    "0", "-0", "1", "-1", "7", "42", "007", "2147483647", "2147483648", "-2147483648", "999999999", "9223372036854775807",
    "9223372036854775808", "123456789012345678", "1234567890123456789012", "0.0", "-0.0", "0.1", "0.10", "1.5", "-2.50",
    "19.99", "1e3", "1E400", "1.7976931348623157e308", "0.001", "0.0009", "9999999.99", "10000000.5", "12345678.25",
    "123456789012.345", "0.1234567890123456", "3.141592653589793", "100000000000000000000.5", "NaN", "01", "1.", ".5", "+1",
]  # fmt: skip
TIMES: Final = [
    "2024-05-17T08:05:03Z", "2024-02-29T23:59:59.999Z", "2023-02-29T00:00:00Z", "1969-12-31T23:59:59.123456Z",
    "2024-05-17T08:05:03.1Z", "2024-05-17T08:05:03+02:00", "2024-05-17 08:05:03", "2024-05-17", "yesterday",
    "1900-01-01T00:00:00Z", "2999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "2024-05-17T08:05:03.1234567Z",
]  # fmt: skip
CONVERSIONS: Final = [
    "count: long", "count: string", "price: string", "price: int", "kind: int", "ok: string", "name: double",
    "kind: timestamp", "id: string",
]  # fmt: skip
Chance = random.Random


def _text(chance: Chance) -> str:
    return chance.choice(TEXTS) + chance.choice(["", "", chance.choice(TEXTS)])


def _number(chance: Chance) -> str:
    if chance.random() < 0.35:
        return chance.choice(NUMBERS)
    if chance.random() < 0.5:
        return str(chance.randrange(-50, 1000))
    return f"{chance.randrange(-1000, 100000) / 10 ** chance.randrange(1, 5)}"


PLAIN: Final[dict[str, Callable[[Chance], str]]] = {
    "boolean": lambda chance: chance.choice(["true", "false"]),
    "timestamp": lambda chance: f'"{chance.choice(TIMES[:2])}"',
    "string": lambda chance: json.dumps(_text(chance), ensure_ascii=False),
    "int": lambda chance: str(chance.randrange(-5, 2000)),
    "long": lambda chance: str(chance.randrange(-5, 1 << chance.randrange(4, 56))),
    "double": lambda chance: f"{chance.randrange(-1000, 100000) / 10 ** chance.randrange(1, 4)}",
}


def _json_value(chance: Chance, kind: str, plain: bool) -> str:
    if plain:
        return PLAIN[kind](chance)
    roll = chance.random()
    if roll < 0.06:
        return "null"
    if roll < 0.1:
        return chance.choice(
            ["{}", "[]", '{"a":{"b":[1,2.5,"x"]}}', "[1,[2,{}]]", '{"a":1,"a":2}', "tru", '"', "{"]
        )
    if roll < 0.14:
        kind = chance.choice(list(TYPES.values()))
    if kind == "boolean":
        return chance.choice(["true", "false"])
    if kind == "timestamp":
        return f'"{chance.choice(TIMES[:2] if chance.random() < 0.7 else TIMES)}"'
    if kind == "string":
        text = json.dumps(_text(chance), ensure_ascii=chance.random() < 0.3)
        return text.replace("/", "\\/") if chance.random() < 0.1 else text
    if kind in ("int", "long") and chance.random() < 0.8:
        return str(chance.randrange(-5, 2000))
    return _number(chance)


def json_record(chance: Chance) -> bytes:
    """A JSON object with most of the declared fields, or nearly one."""
    names = [name for name in NAMES if chance.random() < 0.93]
    if chance.random() < 0.3:
        chance.shuffle(names)
    plain = chance.random() < 0.6
    pairs = [f'"{name}":{_json_value(chance, TYPES[name], plain)}' for name in names]
    if chance.random() < 0.4:
        other = chance.choice(["more", "Name", "_corrupt", "na\\u006de", "name", "é", ""])
        pairs.insert(chance.randrange(len(pairs) + 1), f'"{other}":{_json_value(chance, "string", plain)}')
    blank = chance.choice(["", "", "", " ", "\n\t"])
    text = f"{blank}{{{blank}{f'{blank},{blank}'.join(pairs)}{blank}}}{blank}"
    return _damaged(text.encode("utf-8", "surrogatepass"), chance)


def csv_record(chance: Chance) -> bytes:
    """A line with values of the declared types, or nearly one."""
    values = []
    tame = chance.random() < 0.6
    for kind in TYPES.values():
        if tame:
            plain = PLAIN[kind](chance).strip('"')
            values.append(chance.choice(["a", "b c", "order", "é"]) if kind == "string" else plain)
            continue
        if kind in ("string", "timestamp", "boolean"):
            value = {
                "string": _text,
                "timestamp": lambda c: c.choice(TIMES),
                "boolean": lambda c: c.choice(["true", "false"]),
            }[kind](chance)
            if kind == "timestamp" and chance.random() < 0.7:
                value = TIMES[0]
        else:
            value = str(chance.randrange(-5, 2000)) if chance.random() < 0.7 else _number(chance)
        if chance.random() < 0.06:
            value = ""
        if chance.random() < 0.15:
            value = f'"{value}"'
        values.append(value)
    return _damaged(",".join(values).encode(), chance)


def _damaged(value: bytes, chance: Chance) -> bytes:
    """The value; one in twenty-five with a byte changed, added or removed."""
    if chance.random() > 0.04 or not value:
        return value
    at = chance.randrange(len(value))
    byte = chance.choice([b"", b"\xff", b"\x00", b'"', b",", b"}", b"x", b"\xc3"])
    return value[:at] + byte + value[at + chance.randrange(2) :]


def condition(chance: Chance, depth: int = 2) -> str:
    """A truth value over the fields."""
    if depth and chance.random() < 0.5:
        left, right = condition(chance, depth - 1), condition(chance, depth - 1)
        return chance.choice([f"({left}) and ({right})", f"({left}) or {right}", f"not ({left})"])
    sign = chance.choice(["=", "<>", "<", ">", "<=", ">=", "!="])
    choices: list[Callable[[], str]] = [
        lambda: f"{number(chance, 1)} {sign} {number(chance, 1)}",
        lambda: f"{text(chance, 1)} {sign} {text(chance, 1)}",
        lambda: f"price {sign} {chance.choice(['1.5', '-0.25', '100'])}",
        lambda: f"{chance.choice(NAMES)} is {chance.choice(['', 'not '])}null",
        lambda: f"kind {chance.choice(['', 'not '])}in ('order', 'refund', 'a')",
        lambda: f"count {chance.choice(['', 'not '])}in (1, 7, 42)",
        lambda: f"count {chance.choice(['', 'not '])}between 3 and {chance.choice(['100', 'id'])}",
        lambda: (
            f"name {chance.choice(['', 'not '])}like '{chance.choice(['a%', '%d%', '%', '', 'o%r', 'A b %'])}'"
        ),
        lambda: (
            f"{chance.choice(['startswith', 'endswith', 'contains'])}({text(chance, 1)}, {text(chance, 0)})"
        ),
        lambda: "ok",
    ]
    return chance.choice(choices)()


def number(chance: Chance, depth: int = 2) -> str:
    """A number over the fields."""
    if not depth or chance.random() < 0.4:
        return chance.choice(["id", "count", "price", "rate", "3", "-2", "0", "length(name)"])
    left, right = number(chance, depth - 1), number(chance, depth - 1)
    choices = [
        f"({left} {chance.choice(['+', '-', '*', '/'])} {right})",
        f"price * {chance.choice(['1.19', 'count'])}",
        f"count % {chance.choice(['3', '-7', 'count'])}",
        f"coalesce({chance.choice(['count, 0', 'id, 5', 'price, rate'])})",
        f"if({condition(chance, 0)}, count, 0)",
        f"cast({chance.choice(['count as bigint', 'count as double', 'kind as int', 'name as double'])})",
    ]
    return chance.choice(choices)


def text(chance: Chance, depth: int = 2) -> str:
    """A text over the fields."""
    if not depth or chance.random() < 0.4:
        return chance.choice(["name", "kind", "'order'", "''", "'é'"])
    inner = text(chance, depth - 1)
    choices = [
        f"{chance.choice(['upper', 'lower', 'trim'])}({inner})",
        f"concat({inner}, '-', {text(chance, depth - 1)})",
        f"{inner} || {text(chance, 0)}",
        f"concat_ws('/', {inner}, {chance.choice(['count', 'price', 'id', 'ok', 'kind'])})",
        f"coalesce({inner}, 'none')",
        f"cast({chance.choice(['count', 'price', 'ok', 'id', 'rate'])} as string)",
        f"case when {condition(chance, 0)} then {inner} when ok then 'ok' else kind end",
    ]
    return chance.choice(choices)


def pipeline(chance: Chance) -> tuple[str, Callable[[Chance], bytes]]:
    """A pipeline file, and what makes a record for it."""
    fields = "{" + ", ".join(f"{name}: {kind}" for name, kind in TYPES.items()) + "}"
    as_json = chance.random() < 0.7
    steps = [f"parse: {{{'json' if as_json else 'csv'}: {fields}}}"]
    added: list[str] = []
    if chance.random() < 0.3:
        part = chance.choice(["topic", "partition", "offset", "timestamp", "key", "value"])
        steps.insert(chance.randrange(2), f"metadata: {{part: {part}}}")
    if chance.random() < 0.25:
        steps.insert(0, "metadata: {h: headers}")
        steps.insert(1, "filter: \"h['trace'] is null or h['trace'] <> 'x'\"")
        steps.insert(2, "drop: [h]")
    for place in range(chance.randrange(1, 5)):
        name = f"new{place}"
        choices = [
            f'filter: "{condition(chance)}"',
            f'set: {{{name}: "{number(chance)}"}}',
            f'set: {{{name}: "{text(chance)}", count: "count + 1"}}',
            f'set: {{{name}: "{condition(chance)}"}}',
            f"convert: {{{chance.choice(CONVERSIONS)}}}",
            f"{chance.choice(['trim', 'upper', 'lower', 'unescape'])}: [{chance.choice(['name', 'kind'])}]",
            "constant: {fixed: 'x', whole: 5, flag: true}",
        ]
        step = chance.choice(choices)
        steps.append(step)
        if step.startswith("set") and name not in added:
            added.append(name)
        if step.startswith("convert"):  # later expressions are of the declared types
            break
    ending = chance.randrange(4)
    if ending == 0:
        steps.append(f"drop: [{chance.choice(['rate', 'at', 'ok'])}]")
    elif ending == 1:
        steps.append("keep: [" + ", ".join(["name", "count", "kind", "price", "id", "ok", *added]) + "]")
    outputs = [f"{{topic: out, name: a{_own(chance)}}}"]
    if chance.random() < 0.4:
        outputs = [
            f"{{topic: out, name: a, route: {{by: kind, topics: {{order: orders, a: as}}}}{_own(chance)}}}"
        ]
    elif chance.random() < 0.3:
        outputs = [
            f'{{topic: out, name: a, steps: [filter: "{condition(chance)}", trim: [name]]{_own(chance)}}}'
        ]
    if chance.random() < 0.3:
        outputs.append(f"{{topic: more, name: b{_own(chance)}}}")
    whole = "pipeline: generated\nsource: {topic: t}\nsteps:\n"
    whole += "".join(f"  - {step}\n" for step in steps) + "outputs:\n"
    return whole + "".join(f"  - {output}\n" for output in outputs), json_record if as_json else csv_record


def _own(chance: Chance) -> str:
    """Key, value and headers of an output."""
    options = ""
    if chance.random() < 0.5:
        keys = ["name", "count", "price", "ok", "concat_ws('-', name)", text(chance)]
        options += f', key: "{chance.choice(keys)}"'
    if chance.random() < 0.3:
        options += f', value: "{text(chance)}"'
    if chance.random() < 0.3:
        options += ', headers: {kind: kind, price: "cast(price as string)", x: "\'x\'"}'
    return options
