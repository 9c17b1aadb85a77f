"""Transforms and predicates by class name."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Any, Final

from barnabas.connect.errors import OptionError
from barnabas.connect.transforms.base import Predicate, Transform

KAFKA: Final = "org.apache.kafka.connect.transforms"
KEY, VALUE = "$Key", "$Value"
PARTS: Final = {KEY: "key", VALUE: "value"}

HERE: Final = "barnabas.connect.transforms"
TRANSFORMS: Final[Mapping[str, str]] = {
    **{
        f"{KAFKA}.{name}": f"{HERE}.fields:{name}"
        for name in (
            "ExtractField", "Flatten", "HoistField", "InsertField", "MaskField", "ReplaceField", "SetSchemaMetadata",
            "ValueToKey",
        )
    },
    **{f"{KAFKA}.{name}": f"{HERE}.types:{name}" for name in ("Cast", "TimestampConverter")},
    **{
        f"{KAFKA}.{name}": f"{HERE}.routing:{name}"
        for name in ("DropHeaders", "HeaderFrom", "InsertHeader", "RegexRouter", "TimestampRouter")
    },
    f"{KAFKA}.Filter": f"{HERE}.expressions:Filter",
    "io.confluent.connect.transforms.Drop": f"{HERE}.fields:Drop",
    "Compute": f"{HERE}.expressions:Compute",
    "io.debezium.transforms.ExtractNewRecordState": "barnabas.connect.cdc.transforms:ExtractNewRecordState",
    "io.debezium.transforms.outbox.EventRouter": "barnabas.connect.cdc.transforms:EventRouter",
}  # fmt: skip
"""Class names without $Key and $Value, and where ours are."""
PREDICATES: Final[Mapping[str, str]] = {
    f"{KAFKA}.predicates.{name}": f"{HERE}.routing:{name}"
    for name in ("HasHeaderKey", "RecordIsTombstone", "TopicNameMatches")
}


def _load(name: str, table: Mapping[str, str], kind: str) -> Any:
    where = table.get(name) or next(
        (place for full, place in table.items() if full.rpartition(".")[2] == name), None
    )
    if where is None:
        known = {full.rpartition(".")[2]: full for full in table}
        near = difflib.get_close_matches(name.rpartition(".")[2], known, 1)
        hint = f"; did you mean {known[near[0]]}?" if near else ""
        raise OptionError(f"Class {name} could not be found: there is no such {kind}{hint}")
    module, _, attribute = where.partition(":")
    return getattr(importlib.import_module(module), attribute)


def transform_class(name: str) -> tuple[type[Transform], str]:
    """The class of a name, and its part. Raises OptionError."""
    bare, part = name, ""
    for suffix, meant in PARTS.items():
        if name.endswith(suffix):
            bare, part = name.removesuffix(suffix), meant
    cls: type[Transform] = _load(bare, TRANSFORMS, "transform")
    if cls.parts and part not in cls.parts:
        raise OptionError(
            f"{name} needs one of {', '.join(f'${part.title()}' for part in cls.parts)} at its end"
        )
    return cls, part


def predicate_class(name: str) -> type[Predicate]:
    """The class of a name. Raises OptionError."""
    cls: type[Predicate] = _load(name, PREDICATES, "predicate")
    return cls


def _options(config: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name[len(prefix) :]: text for name, text in config.items() if name.startswith(prefix)}


def make_transform(config: Mapping[str, Any], alias: str) -> Transform:
    """Raises OptionError."""
    prefix = f"transforms.{alias}."
    kind, part = transform_class(_type(config, prefix))
    transform = kind(part)
    try:
        transform.configure(_options(config, prefix))
    except OptionError as error:
        raise OptionError(str(error), f"{prefix}{error.option}") from None
    return transform


def make_predicate(config: Mapping[str, Any], alias: str) -> Predicate:
    """Raises OptionError."""
    prefix = f"predicates.{alias}."
    predicate = predicate_class(_type(config, prefix))()
    try:
        predicate.configure(_options(config, prefix))
    except OptionError as error:
        raise OptionError(str(error), f"{prefix}{error.option}") from None
    return predicate


def _type(config: Mapping[str, Any], prefix: str) -> str:
    name = str(config.get(f"{prefix}type") or "").strip()
    if not name:
        raise OptionError(
            f'Missing required configuration "{prefix}type" which has no default value.', f"{prefix}type"
        )
    try:
        transform_class(name) if prefix.startswith("transforms.") else predicate_class(name)
    except OptionError as error:
        raise OptionError(str(error), f"{prefix}type") from None
    return name
