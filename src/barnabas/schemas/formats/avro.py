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


def _logical_is_valid(avro_type: AvroType, name: str) -> bool:
    if avro_type.kind not in LOGICAL.get(name, ()):
        return False
    if name == "decimal":
        precision, scale = avro_type.properties.get("precision"), avro_type.properties.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int) or precision < 1:
            return False
        return 0 <= scale <= precision and (
            avro_type.kind == "bytes" or precision <= digits_of(avro_type.size)
        )
    if name == "uuid" and avro_type.kind == "fixed":
        return avro_type.size == 16
    return name != "duration" or avro_type.size == 12


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

    def type(self, node: Any, namespace: str, path: str) -> AvroType:
        if isinstance(node, str):
            return self._by_name(node, namespace, path)
        if isinstance(node, list):
            return self._union(node, namespace, path)
        if not isinstance(node, dict):
            raise self.fail(path, f"{_shown(node)} is not a type: use a name, an object or a list")
        kind = node.get("type")
        if kind is None:
            raise self.fail(path, "the object has no `type`")
        if not isinstance(kind, str):
            # {"type": {...}}: Avro's own parser uses the inner type.
            return self.type(kind, namespace, f"{path}/type")
        if kind in NAMED:
            return self._named(kind, node, namespace, path)
        if kind in ("array", "map"):
            part = "items" if kind == "array" else "values"
            if part not in node:
                raise self.fail(path, f"the {kind} has no `{part}`")
            child = self.type(node[part], namespace, f"{path}/{part}")
            return AvroType(kind, children=[child], properties=_rest(node, kind))
        if kind in PRIMITIVES:
            return AvroType(kind, properties=_rest(node, kind))
        return self._by_name(kind, namespace, f"{path}/type")

    def _by_name(self, name: str, namespace: str, path: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        avro_type = self.names.get(full) or self.names.get(name)
        if avro_type is None:
            raise self.fail(
                path,
                f"type {name!r} is unknown: define it before its first use, or add the subject that defines it to "
                "`references`",
            )
        return avro_type

    def _union(self, branches: list[Any], namespace: str, path: str) -> AvroType:
        if not branches:
            raise self.fail(path, "the union has no branches")
        union = AvroType("union")
        seen: set[str] = set()
        for index, branch in enumerate(branches):
            branch_type = self.type(branch, namespace, f"{path}/{index}")
            if branch_type.kind == "union":
                raise self.fail(f"{path}/{index}", "a union must not directly contain another union")
            label = branch_type.name or branch_type.kind
            if label in seen:
                raise self.fail(f"{path}/{index}", f"{label!r} occurs twice in one union")
            seen.add(label)
            union.children.append(branch_type)
        return union

    def _named(self, kind: str, node: dict[str, Any], namespace: str, path: str) -> AvroType:
        full, namespace = self._full_name(node, namespace, path)
        if full in self.names:
            raise self.fail(path, f"{full!r} is defined twice")
        aliases = self._aliases(node, path)
        avro_type = AvroType(
            "record" if kind == "error" else kind,
            full,
            tuple(a if "." in a or not namespace else f"{namespace}.{a}" for a in aliases),
            _text(node.get("doc")),
            properties=_rest(node, kind),
        )
        if kind == "error":
            avro_type.properties = {"_error": True, **avro_type.properties}
        self.names[full] = avro_type
        if kind in ("record", "error"):
            self._fields(avro_type, node, namespace, path)
        elif kind == "enum":
            self._symbols(avro_type, node, path)
        else:
            size = node.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= INT_MAX:
                raise self.fail(path, f"size {_shown(size)} of fixed {full!r} is not a number of bytes")
            avro_type.size = size
        return avro_type

    def _full_name(self, node: dict[str, Any], namespace: str, path: str) -> tuple[str, str]:
        name = node.get("name")
        if not isinstance(name, str) or not name:
            raise self.fail(path, f"the {node['type']} has no name")
        own = node.get("namespace")
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

    def _aliases(self, node: dict[str, Any], path: str) -> list[str]:
        aliases = node.get("aliases") or []
        if not isinstance(aliases, list) or not all(isinstance(a, str) and a for a in aliases):
            raise self.fail(path, "`aliases` is not a list of names")
        return aliases

    def _fields(self, record: AvroType, node: dict[str, Any], namespace: str, path: str) -> None:
        rows = node.get("fields")
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
            avro_field = AvroField(
                name,
                self.type(row["type"], namespace, f"{here}/type"),
                row.get("default", MISSING),
                tuple(self._aliases(row, here)),
                order,
                _text(row.get("doc")),
                _rest(row, "field"),
            )
            record.fields.append(avro_field)
            if self._defaults is not None and avro_field.default is not MISSING:
                self._defaults.append((avro_field, here))

    def _symbols(self, enum: AvroType, node: dict[str, Any], path: str) -> None:
        symbols = node.get("symbols")
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
        default = node.get("default")
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

    def default(self, avro_type: AvroType, value: Any) -> bool:
        """Whether a JSON value is a valid default of a type; for a union, of any branch, as in Avro 1.12."""
        self._steps.spend()
        if not isinstance(value, (list, dict)):
            return self._plain(avro_type, value)
        pair = (id(avro_type), id(value))  # both live as long as the schema is being read
        fits = self._known.get(pair)
        if fits is None:
            fits = self._known[pair] = self._nested(avro_type, value)
        return fits

    def _plain(self, avro_type: AvroType, value: Any) -> bool:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        match avro_type.kind:
            case "null":
                return value is None
            case "boolean":
                return isinstance(value, bool)
            case "int" | "long":
                most = INT_MAX if avro_type.kind == "int" else LONG_MAX
                return number and isinstance(value, int) and -most - 1 <= value <= most
            case "float" | "double":
                return number
            case "string":
                return isinstance(value, str)
            case "bytes" | "fixed":
                if not isinstance(value, str) or not _BYTES_DEFAULT.fullmatch(value):
                    return False
                return avro_type.kind == "bytes" or len(value) == avro_type.size
            case "enum":
                self._steps.spend(len(avro_type.symbols) // 100)
                return value in avro_type.symbols
            case "union":
                return any(self.default(branch, value) for branch in avro_type.children)
            case _:
                return False

    def _nested(self, avro_type: AvroType, value: Any) -> bool:
        match avro_type.kind:
            case "array":
                return isinstance(value, list) and all(self.default(avro_type.children[0], v) for v in value)
            case "map":
                values = value.values() if isinstance(value, dict) else ()
                return isinstance(value, dict) and all(self.default(avro_type.children[0], v) for v in values)
            case "union":
                return any(self.default(branch, value) for branch in avro_type.children)
            case "record":
                return isinstance(value, dict) and all(
                    self.default(f.type, value[f.name]) if f.name in value else f.default is not MISSING
                    for f in avro_type.fields
                )
            case _:
                return False


def describe(avro_type: AvroType, levels: int = 3) -> str:
    """A type in a few words, for messages. levels: how deep to look into unions, arrays and maps."""
    if not levels:
        return avro_type.kind
    if avro_type.kind == "union":
        named = ", ".join(describe(branch, levels - 1) for branch in avro_type.children[:BRANCHES_SHOWN])
        more = len(avro_type.children) - BRANCHES_SHOWN
        return f"union of {named}" + (f" and {more} more" if more > 0 else "")
    if avro_type.name:
        return f"{avro_type.kind} {avro_type.name}"
    if avro_type.children:
        return f"{avro_type.kind} of {describe(avro_type.children[0], levels - 1)}"
    return f"{avro_type.kind} ({avro_type.logical})" if avro_type.logical else avro_type.kind


def _rest(node: dict[str, Any], kind: str) -> dict[str, Any]:
    reserved = _RESERVED_IN_FIELDS if kind == "field" else _RESERVED
    return {
        name: value
        for name, value in node.items()
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

    def type(self, avro_type: AvroType, namespace: str) -> Any:
        if avro_type.kind == "union":
            return [self.type(branch, namespace) for branch in avro_type.children]
        if avro_type.name:
            return self._named(avro_type, namespace)
        node: dict[str, Any] = {"type": avro_type.kind}
        if avro_type.children:
            node["items" if avro_type.kind == "array" else "values"] = self.type(
                avro_type.children[0], namespace
            )
        elif not avro_type.properties:
            return avro_type.kind
        return {**node, **self._properties(avro_type.properties)}

    def _named(self, avro_type: AvroType, namespace: str) -> Any:
        own, _, short = avro_type.name.rpartition(".")
        if avro_type.name in self.written:
            return short if own == namespace and not self.normalize else avro_type.name
        self.written.add(avro_type.name)
        error = avro_type.properties.get("_error")
        node: dict[str, Any] = {"type": "error" if error else avro_type.kind}
        if self.normalize:
            node["name"] = avro_type.name
        else:
            node["name"] = short
            if own != namespace:
                node["namespace"] = own
        if avro_type.doc is not None:
            node["doc"] = avro_type.doc
        if avro_type.kind == "enum":
            node["symbols"] = list(avro_type.symbols)
            if avro_type.default is not None:
                node["default"] = avro_type.default
        elif avro_type.kind == "fixed":
            node["size"] = avro_type.size
        else:
            node["fields"] = [self._field(f, own) for f in avro_type.fields]
        node.update(self._properties({k: v for k, v in avro_type.properties.items() if k != "_error"}))
        if avro_type.aliases:
            node["aliases"] = self._aliases(avro_type, own)
        return node

    def _aliases(self, avro_type: AvroType, own: str) -> list[str]:
        if self.normalize:
            return sorted(avro_type.aliases)
        return [a.rpartition(".")[2] if a.rpartition(".")[0] == own else a for a in avro_type.aliases]

    def _field(self, avro_field: AvroField, namespace: str) -> dict[str, Any]:
        node: dict[str, Any] = {"name": avro_field.name, "type": self.type(avro_field.type, namespace)}
        if avro_field.doc is not None:
            node["doc"] = avro_field.doc
        if avro_field.default is not MISSING:
            node["default"] = avro_field.default
        if avro_field.order != "ascending":
            node["order"] = avro_field.order
        if avro_field.aliases:
            node["aliases"] = sorted(avro_field.aliases) if self.normalize else list(avro_field.aliases)
        return {**node, **self._properties(avro_field.properties)}

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
