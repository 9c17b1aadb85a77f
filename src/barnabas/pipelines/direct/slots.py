"""The slots of a program: where each value is, of which kind it is, and the steps that make it.

Types are those that Spark gives an expression in ANSI mode. An expression that is not understood, or whose type Spark would
find by converting its arguments in ways that are not listed here, needs Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.pipelines.direct.machine import SLOTS, Part
from barnabas.pipelines.direct.operations import Op
from barnabas.pipelines.direct.program import Step
from barnabas.pipelines.direct.values import SlotType
from barnabas.pipelines.plan.expressions import Expression
from barnabas.pipelines.plan.formulas import Formula, FunctionCall, Literal, Name, formula_of

KINDS: Final = {
    "string": SlotType.TEXT,
    "int": SlotType.INT,
    "integer": SlotType.INT,
    "bigint": SlotType.LONG,
    "long": SlotType.LONG,
    "double": SlotType.DOUBLE,
    "boolean": SlotType.BOOLEAN,
    "timestamp": SlotType.TIME,
}
"""The kinds of Spark's types."""
ARITHMETIC: Final = {
    "+": Op.ADD,
    "-": Op.SUBTRACT,
    "*": Op.MULTIPLY,
    "/": Op.DIVIDE,
    "%": Op.REMAINDER,
}
OF_TEXT: Final = {
    "upper": Op.UPPER,
    "lower": Op.LOWER,
    "trim": Op.TRIM,
    "length": Op.LENGTH,
    "char_length": Op.LENGTH,
}
OF_TWO_TEXTS: Final = {"startswith": Op.STARTS, "endswith": Op.ENDS, "contains": Op.CONTAINS}
NUMBERS: Final = (SlotType.INT, SlotType.LONG, SlotType.DOUBLE)
WHOLE: Final = (SlotType.INT, SlotType.LONG)
HEADERS: Final = -1
"""The place of a field that holds all headers."""
DIGITS_SURE: Final = 15


class NeedsSpark(Exception):
    """A query needs Spark's expressions; the message tells users the reason."""


@dataclass
class Slots:
    """names: the fields at this point, in order, with their slots."""

    kinds: list[SlotType] = field(default_factory=list)
    constants: dict[int, Any] = field(default_factory=dict)
    parts: dict[Part, int] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    with_headers: bool = False

    def new(self, kind: SlotType) -> int:
        """A slot. Raises NeedsSpark if there are too many."""
        if len(self.kinds) >= SLOTS:
            raise NeedsSpark(f"the steps make more than {SLOTS} values")
        self.kinds.append(kind)
        return len(self.kinds) - 1

    def constant(self, value: str | int | float | bool | None, kind: SlotType) -> int:
        """A slot with the same value for every record."""
        slot = self.new(kind)
        self.constants[slot] = value
        return slot

    def part(self, part: Part) -> int:
        """The slot of a part of the record."""
        if part not in self.parts:
            kind = {Part.OFFSET: SlotType.LONG, Part.PARTITION: SlotType.INT, Part.TIMESTAMP: SlotType.TIME}
            self.parts[part] = self.new(kind.get(part, SlotType.TEXT))
        return self.parts[part]

    def step(self, op: Op, kind: SlotType, *arguments: int, of: SlotType | None = None) -> int:
        """A step whose result is of this kind; its slot. of: the kind that it works with, if it is another one."""
        slot = self.new(kind)
        self.steps.append(Step(int(op), slot, arguments, int(kind if of is None else of)))
        return slot

    def place(self, name: str) -> int:
        """The slot of a field. Raises NeedsSpark."""
        if name not in self.names:
            raise NeedsSpark(f"{name!r} is not a field of the record")
        if self.names[name] == HEADERS:
            raise NeedsSpark(
                f"{name!r} holds all headers, of which only one can be used, like {name}['trace']"
            )
        return self.names[name]

    def text(self, slot: int) -> int:
        """A value as Spark casts it to text. Raises NeedsSpark."""
        kind = self.kinds[slot]
        if kind == SlotType.TEXT:
            return slot
        if kind == SlotType.TIME:
            raise NeedsSpark("a time is used as text")
        return self.step(Op.TO_TEXT, SlotType.TEXT, slot, of=kind)

    def real(self, slot: int) -> int:
        """A number as a double."""
        if self.kinds[slot] == SlotType.DOUBLE:
            return slot
        if self.kinds[slot] not in WHOLE:
            raise NeedsSpark("a value that is no number is computed with")
        if slot in self.constants:
            return self.constant(float(self.constants[slot]), SlotType.DOUBLE)
        return self.step(Op.WHOLE_TO_REAL, SlotType.DOUBLE, slot)

    def result(self, wanted: Expression) -> int:
        """The slot of an expression's result. Raises NeedsSpark."""
        tree = formula_of(wanted.text)
        if tree is None:
            raise NeedsSpark(f"`{wanted.text}` is not an expression that is understood without Spark")
        try:
            return self._value(tree)
        except NeedsSpark as error:
            raise NeedsSpark(f"`{wanted.text}`: {error}") from None

    def condition(self, wanted: Expression) -> int:
        """The slot of a truth value. Raises NeedsSpark."""
        slot = self.result(wanted)
        if self.kinds[slot] != SlotType.BOOLEAN:
            raise NeedsSpark(f"`{wanted.text}` is not true or false")
        return slot

    def _value(self, tree: Formula) -> int:
        if isinstance(tree, Name):
            return self.place(tree.name)
        if isinstance(tree, Literal):
            return self._literal(tree)
        return self._call(tree)

    def _literal(self, tree: Literal) -> int:
        if tree.decimal:
            raise NeedsSpark(f"{tree.value} is a decimal")
        if isinstance(tree.value, bool):
            return self.constant(tree.value, SlotType.BOOLEAN)
        if isinstance(tree.value, int):
            if abs(tree.value) >= 1 << 63:
                raise NeedsSpark(f"{tree.value} is a decimal")
            return self.constant(tree.value, SlotType.INT if abs(tree.value) < 1 << 31 else SlotType.LONG)
        return self.constant(tree.value, SlotType.TEXT)

    def _call(self, tree: FunctionCall) -> int:
        name, arguments = tree.name, tree.arguments
        if name == "[]":
            return self._header(*arguments)
        if name in ("and", "or", "not"):
            op = {"and": Op.AND, "or": Op.OR, "not": Op.NOT}[name]
            return self.step(op, SlotType.BOOLEAN, *[self._truth(argument) for argument in arguments])
        if name == "is null":
            return self.step(Op.IS_NULL, SlotType.BOOLEAN, self._value(arguments[0]))
        if name == "in":
            if len(arguments) == 1 or not all(isinstance(argument, Literal) for argument in arguments[1:]):
                raise NeedsSpark("`in` has other things than values in its list")
            slot = self._compared("=", arguments[0], arguments[1])
            for argument in arguments[2:]:
                slot = self.step(Op.OR, SlotType.BOOLEAN, slot, self._compared("=", arguments[0], argument))
            return slot
        if name in ("=", "<>", "<", ">", "<=", ">="):
            return self._compared(name, *arguments)
        if name in ARITHMETIC:
            return self._computed(name, *arguments)
        return self._function(name, arguments)

    def _truth(self, tree: Formula) -> int:
        slot = self._value(tree)
        if self.kinds[slot] != SlotType.BOOLEAN:
            raise NeedsSpark("and, or, not of other things than true and false")
        return slot

    def _header(self, of: Formula, name: Formula) -> int:
        if (
            not isinstance(of, Name)
            or self.names.get(of.name) != HEADERS
            or not isinstance(name, Literal)
            or not isinstance(name.value, str)
            or name.decimal
        ):
            raise NeedsSpark("an element of an array or a map is used")
        self.with_headers = True
        return self.step(Op.HEADER, SlotType.TEXT, self.constant(name.value, SlotType.TEXT))

    def _pair(self, left: Formula, right: Formula) -> tuple[int, int]:
        """Two numbers in the kind of the wider one; a decimal beside a double is one, too."""
        decimals = [tree for tree in (left, right) if isinstance(tree, Literal) and tree.decimal]
        if not decimals:
            first, second = self._value(left), self._value(right)
            if SlotType.DOUBLE in (self.kinds[first], self.kinds[second]):
                return self.real(first), self.real(second)
            return first, second
        if len(decimals) == 2:
            raise NeedsSpark("decimals are computed with")
        text = str(decimals[0].value)
        if len(text.strip("-").replace(".", "")) > DIGITS_SURE:
            raise NeedsSpark(f"{text} has more than {DIGITS_SURE} digits")
        other = self._value(right if decimals[0] is left else left)
        if self.kinds[other] != SlotType.DOUBLE:
            raise NeedsSpark(f"{text} is a decimal, and what it goes with is no double")
        number = self.constant(float(text), SlotType.DOUBLE)
        return (number, other) if decimals[0] is left else (other, number)

    def _compared(self, name: str, left: Formula, right: Formula) -> int:
        a, b = self._pair(left, right)
        kinds = {self.kinds[a], self.kinds[b]}
        if kinds <= set(WHOLE):
            kinds = {SlotType.LONG}
        if len(kinds) > 1:
            raise NeedsSpark("values of different types are compared")
        kind = kinds.pop()
        if kind == SlotType.TIME:
            raise NeedsSpark("times are compared")
        if name in (">", "<="):
            a, b = b, a
        less = name in ("<", ">", "<=", ">=")
        slot = self.step(Op.LESS if less else Op.EQUAL, SlotType.BOOLEAN, a, b, of=kind)
        return self.step(Op.NOT, SlotType.BOOLEAN, slot) if name in ("<=", ">=", "<>") else slot

    def _computed(self, name: str, left: Formula, right: Formula) -> int:
        a, b = self._pair(left, right)
        kinds = {self.kinds[a], self.kinds[b]}
        if not kinds <= set(NUMBERS):
            raise NeedsSpark(f"{name} of other things than numbers")
        if name == "/":
            return self.step(Op.DIVIDE, SlotType.DOUBLE, self.real(a), self.real(b))
        if SlotType.DOUBLE in kinds and name == "%":
            raise NeedsSpark("% of doubles")
        return self.step(ARITHMETIC[name], max(kinds), a, b)

    def _texts(self, trees: tuple[Formula, ...]) -> list[int]:
        slots = [self._value(tree) for tree in trees]
        if any(self.kinds[slot] != SlotType.TEXT for slot in slots):
            raise NeedsSpark("a function of text gets something else")
        return slots

    def _function(self, name: str, arguments: tuple[Formula, ...]) -> int:
        if name in OF_TEXT and len(arguments) == 1:
            kind = SlotType.INT if OF_TEXT[name] == Op.LENGTH else SlotType.TEXT
            return self.step(OF_TEXT[name], kind, *self._texts(arguments))
        if name in OF_TWO_TEXTS and len(arguments) == 2:
            return self.step(OF_TWO_TEXTS[name], SlotType.BOOLEAN, *self._texts(arguments))
        if name == "like":
            pattern = arguments[1]
            if not isinstance(pattern, Literal) or not isinstance(pattern.value, str) or "_" in pattern.value:
                raise NeedsSpark("`like` has a pattern with more than texts and %")
            return self.step(Op.LIKE, SlotType.BOOLEAN, *self._texts(arguments))
        if name in ("concat", "||") and arguments:
            return self.step(Op.CONCAT, SlotType.TEXT, *self._texts(arguments))
        if name == "concat_ws" and arguments and isinstance(arguments[0], Literal):
            rest = [self.text(self._value(argument)) for argument in arguments[1:]]
            return self.step(Op.JOIN, SlotType.TEXT, *self._texts(arguments[:1]), *rest)
        if name == "coalesce" and arguments:
            slots = [self._value(argument) for argument in arguments]
            return self.step(Op.COALESCE, self._common(slots), *slots)
        if name == "if" and len(arguments) == 3:
            condition = self._truth(arguments[0])
            slots = [self._value(argument) for argument in arguments[1:]]
            return self.step(Op.CHOOSE, self._common(slots), condition, *slots)
        if name.startswith("cast ") and name[5:] in ("string", "int", "bigint", "double"):
            return self.converted(self._value(arguments[0]), name[5:])
        raise NeedsSpark(f"{name} is not one of the functions that are understood without Spark")

    def _common(self, slots: list[int]) -> SlotType:
        kinds = {self.kinds[slot] for slot in slots}
        if kinds == set(WHOLE):
            return SlotType.LONG
        if len(kinds) > 1:
            raise NeedsSpark("values of different types are chosen from")
        return kinds.pop()

    def converted(self, slot: int, kind: str) -> int:
        """A value as another type of Spark. Raises NeedsSpark."""
        old = self.kinds[slot]
        new = KINDS.get(kind)
        if new is None:
            raise NeedsSpark(f"something is converted to {kind}, not to one of {', '.join(KINDS)}")
        if old == new:
            return self.step(Op.COPY, new, slot)
        if new == SlotType.TEXT:
            return self.text(slot)
        if new == SlotType.DOUBLE and old == SlotType.INT:
            return self.real(slot)
        if old == SlotType.INT and new == SlotType.LONG:
            return self.step(Op.COPY, new, slot)
        if old == SlotType.DOUBLE and new == SlotType.INT:
            return self.step(Op.REAL_TO_WHOLE, new, slot)
        of_text = {
            SlotType.INT: Op.TEXT_TO_WHOLE,
            SlotType.LONG: Op.TEXT_TO_WHOLE,
            SlotType.DOUBLE: Op.TEXT_TO_REAL,
            SlotType.BOOLEAN: Op.TEXT_TO_BOOLEAN,
            SlotType.TIME: Op.TEXT_TO_TIME,
        }
        if old != SlotType.TEXT:
            raise NeedsSpark(f"a value is converted to {kind} from another type than text")
        return self.step(of_text[new], new, slot)


def of_types(types: Mapping[str, str], prefix: str = "") -> dict[str, SlotType]:
    """The kind of each declared field. Raises NeedsSpark."""
    kinds = {}
    for name, kind in types.items():
        if kind.strip().lower() not in KINDS:
            raise NeedsSpark(f"{name} is declared as {kind}, not as one of {', '.join(KINDS)}")
        kinds[prefix + name] = KINDS[kind.strip().lower()]
    return kinds
