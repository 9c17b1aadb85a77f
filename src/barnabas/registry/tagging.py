"""Adds and removes tags on parts of a schema, as requested. Pure."""

from __future__ import annotations

from dataclasses import replace

from barnabas.registry.library import Library
from barnabas.registry.model import Content
from barnabas.registry.requests import Wanted
from barnabas.registry.subjects import Subject
from barnabas.schemas.errors import InvalidSchema
from barnabas.schemas.model import PROTOBUF


def with_tags(wanted: Wanted, library: Library, subject: Subject) -> Content:
    """The wanted content with its tags changed. Raises InvalidSchema, also for Protobuf."""
    content = wanted.content
    if content.type == PROTOBUF:
        raise InvalidSchema(
            "tags inside of Protobuf schemas are not supported; name them in metadata.tags by path"
        )
    references = library.resolve_latest(content.references, subject.context)
    alone = replace(content, references=references, metadata=None, rules=None)
    library.read(alone, subject.context).require_valid()
    return replace(content, text=library.tagged(content, (wanted.tags_to_add, wanted.tags_to_remove)))
