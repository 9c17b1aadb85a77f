"""Documents as JSON, in the three forms of MongoDB's connector. No I/O."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import bson
from bson import json_util


def _strict(document: Any) -> str:
    return json_util.dumps(document, json_options=json_util.LEGACY_JSON_OPTIONS, ensure_ascii=False)


def extended(document: Any) -> str:
    """With the type of every value, so that it can be read back."""
    return json_util.dumps(document, json_options=json_util.CANONICAL_JSON_OPTIONS, ensure_ascii=False)


def _simplified(document: Any) -> str:
    return json.dumps(_plain(document), ensure_ascii=False)


def _plain(value: Any) -> Any:
    """Values as people would write them in JSON."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if hasattr(value, "isoformat"):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return str(value)


FORMATS: Final[Mapping[str, Callable[[Any], str]]] = {
    "DefaultJson": _strict,
    "ExtendedJson": extended,
    "SimplifiedJson": _simplified,
}
"""By the formatter's simple class name."""


def loads(text: str) -> Any:
    """A document of any of MongoDB's JSON forms. Raises ValueError."""
    try:
        return json_util.loads(text)
    except (TypeError, bson.errors.BSONError) as error:
        raise ValueError(str(error)) from error
