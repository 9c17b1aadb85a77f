"""Converters by class name."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Any, Final

from barnabas.connect.converters.base import Converter
from barnabas.connect.converters.headers import ByConverter, HeaderConverter, SimpleHeaderConverter
from barnabas.connect.errors import OptionError

STORAGE: Final = "org.apache.kafka.connect.storage"
CONFLUENT: Final = "barnabas.connect.converters.confluent"
SIMPLE: Final = "barnabas.connect.converters.simple"
NUMBERS: Final = "org.apache.kafka.connect.converters"
CLASSES: Final[Mapping[str, str]] = {
    "org.apache.kafka.connect.json.JsonConverter": "barnabas.connect.converters.json:JsonConverter",
    f"{STORAGE}.StringConverter": f"{SIMPLE}:StringConverter",
    f"{NUMBERS}.ByteArrayConverter": f"{SIMPLE}:ByteArrayConverter",
    **{
        f"{NUMBERS}.{name}Converter": f"{SIMPLE}:{name}Converter"
        for name in ("Boolean", "Short", "Integer", "Long", "Float", "Double")
    },
    "io.confluent.connect.avro.AvroConverter": f"{CONFLUENT}:AvroConverter",
    "io.confluent.connect.json.JsonSchemaConverter": f"{CONFLUENT}:JsonSchemaConverter",
    "io.confluent.connect.protobuf.ProtobufConverter": f"{CONFLUENT}:ProtobufConverter",
}
"""Kafka's class names, and where ours are."""
HEADER_CLASSES: Final = (f"{STORAGE}.SimpleHeaderConverter",)


def converter_class(name: str) -> type[Converter]:
    """The class of a full or simple name. Raises OptionError with what is near."""
    where = CLASSES.get(name) or next(
        (place for full, place in CLASSES.items() if full.rpartition(".")[2] in (name, f"{name}Converter")),
        None,
    )
    if where is None:
        known = {full.rpartition(".")[2]: full for full in CLASSES}
        near = difflib.get_close_matches(name.rpartition(".")[2], known, 1)
        hint = f"; did you mean {known[near[0]]}?" if near else f"; there are {', '.join(sorted(known))}"
        raise OptionError(f"Class {name} could not be found{hint}")
    module, _, attribute = where.partition(":")
    try:
        cls: type[Converter] = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise OptionError(f"converter {name} cannot be loaded: {error}") from None
    return cls


def make_converter(name: str, config: Mapping[str, Any], is_key: bool) -> Converter:
    """Raises OptionError."""
    converter = converter_class(name)()
    converter.configure(config, is_key)
    return converter


def make_header_converter(name: str, config: Mapping[str, Any]) -> HeaderConverter:
    """Raises OptionError."""
    if name.rpartition(".")[2] == "SimpleHeaderConverter":
        return SimpleHeaderConverter()
    return ByConverter(make_converter(name, config, False))


def prefixed(config: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The options that begin with the prefix, without it."""
    return {name[len(prefix) :]: value for name, value in config.items() if name.startswith(prefix)}
