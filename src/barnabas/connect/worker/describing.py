"""The plug-ins besides connectors, and the options of all."""

from __future__ import annotations

from typing import Any, Final

from barnabas.connect.converters.finding import CLASSES as CONVERTERS
from barnabas.connect.converters.finding import HEADER_CLASSES, converter_class
from barnabas.connect.errors import OptionError
from barnabas.connect.options import ConfigDef
from barnabas.connect.plugins import find_plugin
from barnabas.connect.transforms.finding import (
    PREDICATES,
    TRANSFORMS,
    predicate_class,
    transform_class,
)
from barnabas.connect.worker.validating import definitions_json

VERSION: Final = "0.1.0"


def other_plugins() -> list[dict[str, str]]:
    """Converters, header converters, transforms and predicates."""
    rows = [(name, "converter") for name in CONVERTERS]
    rows += [(name, "header_converter") for name in (*HEADER_CLASSES, *CONVERTERS)]
    for name in TRANSFORMS:
        parts = transform_class_parts(name)
        rows += [(f"{name}${part.title()}", "transformation") for part in parts] or [(name, "transformation")]
    rows += [(name, "predicate") for name in PREDICATES]
    return [{"class": name, "type": kind, "version": VERSION} for name, kind in rows]


def transform_class_parts(name: str) -> tuple[str, ...]:
    """The parts that a transform has forms for."""
    try:
        return transform_class(name)[0].parts
    except OptionError:
        return ("key", "value")


def definitions_of(name: str) -> list[dict[str, Any]]:
    """The options of a plug-in of any type. Raises OptionError."""
    try:
        return definitions_json(find_plugin(name).load().definition())
    except OptionError as unknown:
        for find in (
            lambda: transform_class(name)[0],
            lambda: predicate_class(name),
            lambda: converter_class(name),
        ):
            try:
                return definitions_json(ConfigDef(find().options))
            except OptionError:
                continue
        raise unknown
