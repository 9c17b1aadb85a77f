"""Builds validators of JSON Schema. Nothing else builds one, because these never fetch a schema from anywhere.

jsonschema-rs by itself loads what `$schema`, `$ref` and `$id` name, by HTTP or from files, while it holds the
interpreter's lock: whoever registers a schema could stop the whole process, and could read other people's networks.
Needs jsonschema-rs, of the extra `services`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NoReturn

NOWHERE: Final = "urn:barnabas:nothing"


class NotFetched(ValueError):
    """A schema refers to another one that was not given."""


def _refuse(uri: str) -> NoReturn:
    raise NotFetched(f"{uri} was not given, and schemas are never fetched; add it to the schema's references")


def documents_of(documents: Iterable[tuple[str, Any]]) -> Any:
    """A registry of the schemas that others may refer to, by their URIs. Raises ValueError for an invalid one."""
    import jsonschema_rs

    return jsonschema_rs.Registry(list(documents), retriever=_refuse)


def validator_of(tree: Any, documents: Any) -> Any:
    """A validator of values. documents: made by `documents_of`.

    Raises ValidationError or ReferencingError (both of jsonschema-rs) or ValueError for an invalid schema.
    """
    import jsonschema_rs

    # Regular expressions in linear time, so that no value can make one take forever.
    options = jsonschema_rs.RegexOptions()
    return jsonschema_rs.validator_for(tree, registry=documents, retriever=_refuse, pattern_options=options)


def check_draft(tree: Any) -> None:
    """Check a schema by the rules of the draft that its `$schema` names.

    Raises ValidationError, or ReferencingError if the draft is unknown (both of jsonschema-rs).
    """
    import jsonschema_rs

    # Without a registry of its own, the library would use one that fetches unknown drafts.
    jsonschema_rs.meta.validate(tree, registry=documents_of([(NOWHERE, {})]))
