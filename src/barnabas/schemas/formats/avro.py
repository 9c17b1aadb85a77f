"""Avro schemas: parsed with all names resolved, printed like Avro's own `Schema.toString`. Pure.

Source: the Avro specification 1.12 (names, aliases, defaults, logical types).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.schemas.errors import InvalidSchema
from barnabas.schemas.formats.base import Dependency, TooDeep
from barnabas.schemas.formats.pairs import STEPS_MAX, Steps
from barnabas.schemas.json_text import BadJson, parse_json
from barnabas.schemas.model import AVRO

PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NAMED: Final = ("record", "error", "enum", "fixed")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_BYTES_DEFAULT: Final = re.compile(r"[\x00-\xff]*")
ORDERS: Final = ("ascending", "descending", "ignore")
LONG_MAX: Final = (1 << 63) - 1
INT_MAX: Final = (1 << 31) - 1
BRANCHES_SHOWN: Final = 10
_RESERVED: Final = frozenset(
    ("aliases", "doc", "fields", "items", "name", "namespace", "size", "symbols", "type", "values")
)
"""Names that are never custom attributes of a type, even where they mean nothing: `{"type":"int","name":"x"}` is an int,
as in Avro's own parser."""
_RESERVED_IN_FIELDS: Final = frozenset(("aliases", "default", "doc", "name", "order", "type"))


class _Missing:
    """The type of MISSING, for fields without a default (None stands for the default null)."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()


@dataclass(slots=True, eq=False)
class AvroField:
    """One field of a record."""

    name: str
    type: AvroType
    default: Any = MISSING
    aliases: tuple[str, ...] = ()
    order: str = "ascending"
    doc: str | None = None
    properties: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class AvroType:
    """One type. Named types are shared by all places that name them, so types may form a graph with cycles.

    name: the full name of a named type. children: the branches of a union, or the type of items or values.
    """

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    doc: str | None = None
    fields: list[AvroField] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    default: str | None = None
    size: int = 0
    children: list[AvroType] = field(default_factory=list)
    properties: dict[str, Any] = field(default_factory=dict)

    @property
    def logical(self) -> str | None:
        """The logical type if it is valid for this type; the specification demands that others are ignored."""
        name = self.properties.get("logicalType")
        return name if isinstance(name, str) and _logical_is_valid(self, name) else None

    @property
    def short_name(self) -> str:
        """The name without its namespace."""
        return self.name.rpartition(".")[2]


LOGICAL: Final[Mapping[str, tuple[str, ...]]] = {
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "timestamp-nanos": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "local-timestamp-nanos": ("long",),
    "uuid": ("string", "fixed"),
    "decimal": ("bytes", "fixed"),
    "big-decimal": ("bytes",),
    "duration": ("fixed",),
}


def _logical_is_valid(held: AvroType, name: str) -> bool:
    if held.kind not in LOGICAL.get(name, ()):
        return False
    if name == "decimal":
        precision, scale = held.properties.get("precision"), held.properties.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int) or precision < 1:
            return False
        return 0 <= scale <= precision and (held.kind == "bytes" or precision <= digits_of(held.size))
    if name == "uuid" and held.kind == "fixed":
        return held.size == 16
    return name != "duration" or held.size == 12


def digits_of(size: int) -> int:
    """How many decimal digits always fit into a signed number of `size` bytes."""
    return len(str(2 ** (8 * min(size, 1 << 10) - 1) - 1)) - 1 if size else 0


class AvroSchema:
    """A parsed schema. root: its type. foreign: full names of the types that its references define."""

    language: Final = AVRO

    def __init__(self, root: AvroType, foreign: frozenset[str] = frozenset()) -> None:
        self.root = root
        self.foreign = foreign
        self.canonical = _dump(_Writer(foreign).type(root, ""))

    def normalized(self) -> str:
        """The text with full names, and with custom attributes sorted by name."""
        return _dump(_Writer(self.foreign, normalize=True).type(self.root, ""))

    def field_names(self) -> list[str]:
        """The names of the fields of a record."""
        return [field.name for field in self.root.fields]

    def formatted(self, style: str) -> str:
        """The text in a format: `resolved` contains the types of references; empty or `default` is the stored form.

        Raises InvalidSchema for an unknown one.
        """
        if style in ("", "default"):
            return self.canonical
        if style == "resolved":
            return _dump(_Writer(frozenset()).type(self.root, ""))
        raise InvalidSchema(f"format {style!r} is unknown; Avro has: resolved")


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def read_avro(
    text: str, dependencies: Sequence[Dependency] = (), *, new: bool = True, steps: Steps | None = None
) -> AvroSchema:
    """Parse a schema. new: also check defaults, which is not done for schemas that were stored earlier.

    dependencies: innermost first. Raises InvalidSchema, which names the place, and OverBudget.
    """
    reader = _Reader(new, steps or Steps(STEPS_MAX))
    try:
        for dependency in dependencies:
            reader.place = f"reference {dependency.name}: "
            reader.type(_json(dependency.text, reader.place), "", "")
        foreign = frozenset(reader.names)
        reader.place = ""
        root = reader.type(_json(text, ""), "", "")
        reader.check_defaults()
        return AvroSchema(root, foreign)
    except RecursionError:
        raise TooDeep from None


def _json(text: str, where: str) -> Any:
    stripped = text.strip()
    if stripped in PRIMITIVES:  # Avro's own parser accepts a bare name, too
        return stripped
    try:
        return parse_json(text)
    except BadJson as error:
        raise InvalidSchema(f"{where}the schema is not JSON: {error}") from None


class _Reader:
    """Parses schemas one by one; each may use the names of earlier ones. place: what messages begin with."""

    def __init__(self, check_defaults: bool, steps: Steps) -> None:
        self.fits = _Fits(steps)
        self.names: dict[str, AvroType] = {}
        self.place = ""
        self._defaults: list[tuple[AvroField, str]] | None = [] if check_defaults else None

    def fail(self, path: str, message: str) -> InvalidSchema:
        return InvalidSchema(f"{self.place}{path or '/'}: {message}")

    def type(self, given: Any, namespace: str, path: str) -> AvroType:
        if isinstance(given, str):
            return self._by_name(given, namespace, path)
        if isinstance(given, list):
            return self._union(given, namespace, path)
        if not isinstance(given, dict):
            raise self.fail(path, f"{_shown(given)} is not a type: use a name, an object or a list")
        kind = given.get("type")
        if kind is None:
            raise self.fail(path, "the object has no `type`")
        if not isinstance(kind, str):
            # {"type": {...}}: Avro's own parser uses the inner type.
            return self.type(kind, namespace, f"{path}/type")
        if kind in NAMED:
            return self._named(kind, given, namespace, path)
        if kind in ("array", "map"):
            part = "items" if kind == "array" else "values"
            if part not in given:
                raise self.fail(path, f"the {kind} has no `{part}`")
            child = self.type(given[part], namespace, f"{path}/{part}")
            return AvroType(kind, children=[child], properties=_rest(given, kind))
        if kind in PRIMITIVES:
            return AvroType(kind, properties=_rest(given, kind))
        return self._by_name(kind, namespace, f"{path}/type")

    def _by_name(self, name: str, namespace: str, path: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self.names.get(full) or self.names.get(name)
        if found is None:
            raise self.fail(
                path,
                f"type {name!r} is unknown: define it before its first use, or add the subject that defines it to "
                "`references`",
            )
        return found

    def _union(self, given: list[Any], namespace: str, path: str) -> AvroType:
        if not given:
            raise self.fail(path, "the union has no branches")
        union = AvroType("union")
        seen: set[str] = set()
        for index, branch in enumerate(given):
            made = self.type(branch, namespace, f"{path}/{index}")
            if made.kind == "union":
                raise self.fail(f"{path}/{index}", "a union must not directly contain another union")
            label = made.name or made.kind
            if label in seen:
                raise self.fail(f"{path}/{index}", f"{label!r} occurs twice in one union")
            seen.add(label)
            union.children.append(made)
        return union

    def _named(self, kind: str, given: dict[str, Any], namespace: str, path: str) -> AvroType:
        full, namespace = self._full_name(given, namespace, path)
        if full in self.names:
            raise self.fail(path, f"{full!r} is defined twice")
        aliases = self._aliases(given, path)
        made = AvroType(
            "record" if kind == "error" else kind,
            full,
            tuple(a if "." in a or not namespace else f"{namespace}.{a}" for a in aliases),
            _text(given.get("doc")),
            properties=_rest(given, kind),
        )
        if kind == "error":
            made.properties = {"_error": True, **made.properties}
        self.names[full] = made
        if kind in ("record", "error"):
            self._fields(made, given, namespace, path)
        elif kind == "enum":
            self._symbols(made, given, path)
        else:
            size = given.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= INT_MAX:
                raise self.fail(path, f"size {_shown(size)} of fixed {full!r} is not a number of bytes")
            made.size = size
        return made

    def _full_name(self, given: dict[str, Any], namespace: str, path: str) -> tuple[str, str]:
        name = given.get("name")
        if not isinstance(name, str) or not name:
            raise self.fail(path, f"the {given['type']} has no name")
        own = given.get("namespace")
        if own is not None and not isinstance(own, str):
            raise self.fail(path, f"namespace {_shown(own)} is not a string")
        if "." in name:
            namespace = name.rpartition(".")[0]
        else:
            namespace = namespace if own is None else own
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        for part in full.lstrip(".").split("."):
            if not _NAME.fullmatch(part):
                raise self.fail(
                    path, f"{full!r} is not a valid name: use letters, digits and _, no digit first"
                )
        if full in PRIMITIVES:
            raise self.fail(path, f"{full!r} is the name of a primitive type")
        return full.lstrip("."), namespace

    def _aliases(self, given: dict[str, Any], path: str) -> list[str]:
        aliases = given.get("aliases") or []
        if not isinstance(aliases, list) or not all(isinstance(a, str) and a for a in aliases):
            raise self.fail(path, "`aliases` is not a list of names")
        return aliases

    def _fields(self, record: AvroType, given: dict[str, Any], namespace: str, path: str) -> None:
        rows = given.get("fields")
        if not isinstance(rows, list):
            raise self.fail(path, f"record {record.name!r} has no list of `fields`")
        seen: set[str] = set()
        for index, row in enumerate(rows):
            here = f"{path}/fields/{index}"
            if not isinstance(row, dict) or not isinstance(row.get("name"), str):
                raise self.fail(here, "the field has no name")
            name = row["name"]
            if not _NAME.fullmatch(name):
                raise self.fail(
                    here, f"{name!r} is not a valid name: use letters, digits and _, no digit first"
                )
            if name in seen:
                raise self.fail(here, f"field {name!r} occurs twice in record {record.name!r}")
            seen.add(name)
            if "type" not in row:
                raise self.fail(here, f"field {name!r} has no type")
            order = row.get("order", "ascending")
            if order not in ORDERS:
                raise self.fail(
                    here, f"order {_shown(order)} of field {name!r} is not one of {', '.join(ORDERS)}"
                )
            made = AvroField(
                name,
                self.type(row["type"], namespace, f"{here}/type"),
                row.get("default", MISSING),
                tuple(self._aliases(row, here)),
                order,
                _text(row.get("doc")),
                _rest(row, "field"),
            )
            record.fields.append(made)
            if self._defaults is not None and made.default is not MISSING:
                self._defaults.append((made, here))

    def _symbols(self, enum: AvroType, given: dict[str, Any], path: str) -> None:
        symbols = given.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(s, str) for s in symbols):
            raise self.fail(path, f"enum {enum.name!r} has no list of `symbols`")
        for symbol in symbols:
            if not _NAME.fullmatch(symbol):
                raise self.fail(
                    path, f"symbol {symbol!r} is not a valid name: use letters, digits and _, no digit first"
                )
        if len(set(symbols)) != len(symbols):
            twice = next(s for s, count in Counter(symbols).items() if count > 1)
            raise self.fail(path, f"symbol {twice!r} occurs twice in enum {enum.name!r}")
        default = given.get("default")
        if default is not None and default not in symbols:
            raise self.fail(path, f"default {_shown(default)} is not a symbol of enum {enum.name!r}")
        enum.symbols, enum.default = tuple(symbols), default

    def check_defaults(self) -> None:
        """Check the defaults when all types are complete: one may be of an enclosing record. Raises InvalidSchema."""
        for avro_field, path in self._defaults or ():
            if not self.fits.default(avro_field.type, avro_field.default):
                shown = describe(avro_field.type)
                hint = (
                    "; the default of a union must fit one of its branches"
                    if avro_field.type.kind == "union"
                    else ""
                )
                raise self.fail(
                    path,
                    f"default {_shown(avro_field.default)} of field {avro_field.name!r} is not of type {shown}{hint}",
                )


class _Fits:
    """Whether defaults fit their types. Each value is compared with each type once."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._known: dict[tuple[int, int], bool] = {}

    def default(self, held: AvroType, value: Any) -> bool:
        """Whether a JSON value is a valid default of a type; for a union, of any branch, as in Avro 1.12."""
        self._steps.spend()
        if not isinstance(value, (list, dict)):
            return self._plain(held, value)
        pair = (id(held), id(value))  # both live as long as the schema is being read
        found = self._known.get(pair)
        if found is None:
            found = self._known[pair] = self._nested(held, value)
        return found

    def _plain(self, held: AvroType, value: Any) -> bool:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        match held.kind:
            case "null":
                return value is None
            case "boolean":
                return isinstance(value, bool)
            case "int" | "long":
                most = INT_MAX if held.kind == "int" else LONG_MAX
                return number and isinstance(value, int) and -most - 1 <= value <= most
            case "float" | "double":
                return number
            case "string":
                return isinstance(value, str)
            case "bytes" | "fixed":
                if not isinstance(value, str) or not _BYTES_DEFAULT.fullmatch(value):
                    return False
                return held.kind == "bytes" or len(value) == held.size
            case "enum":
                self._steps.spend(len(held.symbols) // 100)
                return value in held.symbols
            case "union":
                return any(self.default(branch, value) for branch in held.children)
            case _:
                return False

    def _nested(self, held: AvroType, value: Any) -> bool:
        match held.kind:
            case "array":
                return isinstance(value, list) and all(self.default(held.children[0], v) for v in value)
            case "map":
                values = value.values() if isinstance(value, dict) else ()
                return isinstance(value, dict) and all(self.default(held.children[0], v) for v in values)
            case "union":
                return any(self.default(branch, value) for branch in held.children)
            case "record":
                return isinstance(value, dict) and all(
                    self.default(f.type, value[f.name]) if f.name in value else f.default is not MISSING
                    for f in held.fields
                )
            case _:
                return False


def describe(held: AvroType, levels: int = 3) -> str:
    """A type in a few words, for messages. levels: how deep to look into unions, arrays and maps."""
    if not levels:
        return held.kind
    if held.kind == "union":
        named = ", ".join(describe(branch, levels - 1) for branch in held.children[:BRANCHES_SHOWN])
        more = len(held.children) - BRANCHES_SHOWN
        return f"union of {named}" + (f" and {more} more" if more > 0 else "")
    if held.name:
        return f"{held.kind} {held.name}"
    if held.children:
        return f"{held.kind} of {describe(held.children[0], levels - 1)}"
    return f"{held.kind} ({held.logical})" if held.logical else held.kind


def _rest(given: dict[str, Any], kind: str) -> dict[str, Any]:
    reserved = _RESERVED_IN_FIELDS if kind == "field" else _RESERVED
    return {
        name: value
        for name, value in given.items()
        if name not in reserved and not (kind == "enum" and name == "default")
    }


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "..."


class _Writer:
    """Prints a type as JSON: each named type in full where it first occurs, by its name afterwards."""

    def __init__(self, known: frozenset[str], *, normalize: bool = False) -> None:
        self.written = set(known)
        self.normalize = normalize

    def type(self, held: AvroType, namespace: str) -> Any:
        if held.kind == "union":
            return [self.type(branch, namespace) for branch in held.children]
        if held.name:
            return self._named(held, namespace)
        made: dict[str, Any] = {"type": held.kind}
        if held.children:
            made["items" if held.kind == "array" else "values"] = self.type(held.children[0], namespace)
        elif not held.properties:
            return held.kind
        return {**made, **self._properties(held.properties)}

    def _named(self, held: AvroType, namespace: str) -> Any:
        own, _, short = held.name.rpartition(".")
        if held.name in self.written:
            return short if own == namespace and not self.normalize else held.name
        self.written.add(held.name)
        error = held.properties.get("_error")
        made: dict[str, Any] = {"type": "error" if error else held.kind}
        if self.normalize:
            made["name"] = held.name
        else:
            made["name"] = short
            if own != namespace:
                made["namespace"] = own
        if held.doc is not None:
            made["doc"] = held.doc
        if held.kind == "enum":
            made["symbols"] = list(held.symbols)
            if held.default is not None:
                made["default"] = held.default
        elif held.kind == "fixed":
            made["size"] = held.size
        else:
            made["fields"] = [self._field(f, own) for f in held.fields]
        made.update(self._properties({k: v for k, v in held.properties.items() if k != "_error"}))
        if held.aliases:
            made["aliases"] = self._aliases(held, own)
        return made

    def _aliases(self, held: AvroType, own: str) -> list[str]:
        if self.normalize:
            return sorted(held.aliases)
        return [a.rpartition(".")[2] if a.rpartition(".")[0] == own else a for a in held.aliases]

    def _field(self, held: AvroField, namespace: str) -> dict[str, Any]:
        made: dict[str, Any] = {"name": held.name, "type": self.type(held.type, namespace)}
        if held.doc is not None:
            made["doc"] = held.doc
        if held.default is not MISSING:
            made["default"] = held.default
        if held.order != "ascending":
            made["order"] = held.order
        if held.aliases:
            made["aliases"] = sorted(held.aliases) if self.normalize else list(held.aliases)
        return {**made, **self._properties(held.properties)}

    def _properties(self, properties: dict[str, Any]) -> dict[str, Any]:
        if not self.normalize:
            return properties
        return {name: sort_names(properties[name]) for name in sorted(properties)}


def sort_names(value: Any) -> Any:
    """A JSON value with the names in its objects sorted."""
    if isinstance(value, dict):
        return {name: sort_names(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [sort_names(item) for item in value]
    return value
