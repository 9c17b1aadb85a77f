"""Merges the metadata and rules of a request or the previous version with a scope's defaults and overrides. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.registry.model import Config, Content
from barnabas.registry.requests import RULE_LISTS

JsonObject = Mapping[str, Any] | None


def with_inherited(content: Content, previous: Content | None, config: Config) -> Content:
    """The content to store. Metadata or rules that the request omits are taken from the previous version."""
    metadata = content.metadata or (previous.metadata if previous else None)
    rules = content.rules or (previous.rules if previous else None)
    metadata = merge_metadata(merge_metadata(config.default_metadata, metadata), config.override_metadata)
    rules = merge_rules(merge_rules(config.default_rules, rules), config.override_rules)
    if metadata is content.metadata and rules is content.rules:
        return content
    return Content(content.type, content.text, content.references, metadata, rules)


def merge_metadata(weaker: JsonObject, stronger: JsonObject) -> JsonObject:
    """Merge metadata: properties of `stronger` win; tags and names of sensitive properties are united."""
    if not weaker or not stronger:
        return stronger or weaker or None
    tags: dict[str, list[str]] = {path: list(names) for path, names in (weaker.get("tags") or {}).items()}
    for path, names in (stronger.get("tags") or {}).items():
        tags[path] = sorted({*tags.get(path, ()), *names})
    properties = {**(weaker.get("properties") or {}), **(stronger.get("properties") or {})}
    sensitive = sorted({*(weaker.get("sensitive") or ()), *(stronger.get("sensitive") or ())})
    merged: dict[str, Any] = {}
    if tags:
        merged["tags"] = dict(sorted(tags.items()))
    if properties:
        merged["properties"] = dict(sorted(properties.items()))
    if sensitive:
        merged["sensitive"] = sensitive
    return merged


def merge_rules(weaker: JsonObject, stronger: JsonObject) -> JsonObject:
    """Merge rule sets: a rule of `stronger` replaces the rule of the same name in `weaker`."""
    if not weaker or not stronger:
        return stronger or weaker or None
    merged: dict[str, Any] = {}
    for part in RULE_LISTS:
        own = list(stronger.get(part) or ())
        names = {rule["name"] for rule in own}
        rows = [rule for rule in weaker.get(part) or () if rule["name"] not in names] + own
        if rows:
            merged[part] = rows
    where_run = stronger.get("enableAt") or weaker.get("enableAt")
    if where_run:
        merged["enableAt"] = where_run
    return merged
