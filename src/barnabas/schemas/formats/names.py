"""The names of the records that a schema defines, from which record name strategies derive subjects. Pure."""

from __future__ import annotations

import json
from typing import Any, Final

NESTED_MAX: Final = 50


def record_names(kind: str, text: str) -> frozenset[str]:
    """The full name of an Avro type, the title of a JSON Schema, or the full names of all messages in a .proto file.

    Empty if the schema has none or is invalid. For PROTOBUF the package protobuf must be installed.
    """
    if kind == "PROTOBUF":
        return _message_names(text)
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        return frozenset()
    if not isinstance(tree, dict):
        return frozenset()
    if kind == "JSON":
        name = tree.get("title")
    else:
        name = tree.get("name")
        space = tree.get("namespace")
        if isinstance(name, str) and isinstance(space, str) and space and "." not in name:
            name = f"{space}.{name}"
    return frozenset({name}) if isinstance(name, str) else frozenset()


def _message_names(text: str) -> frozenset[str]:
    from barnabas.schemas.errors import InvalidSchema
    from barnabas.schemas.formats.protobuf import read_file

    try:
        file = read_file(text)
    except (InvalidSchema, RecursionError):
        return frozenset()
    names: set[str] = set()
    _collect(file.message_type, f"{file.package}." if file.package else "", names, 0)
    return frozenset(names)


def _collect(messages: Any, before: str, names: set[str], depth: int) -> None:
    for message in messages if depth < NESTED_MAX else ():
        names.add(f"{before}{message.name}")
        _collect(message.nested_type, f"{before}{message.name}.", names, depth + 1)
