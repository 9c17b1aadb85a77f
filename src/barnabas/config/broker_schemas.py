"""Broker options: the schema registry by which records are checked. Source: Confluent Server."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from barnabas.config.option import Mark, OptionTable

SCHEMAS: Final = OptionTable("Schema validation")


def registry_addresses(value: tuple[str, ...]) -> str | None:
    """Checks a list of registries: http or https, a host, no password; returns what is wrong, or None."""
    for url in value:
        try:
            parts = urlsplit(url)
            is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_good = False
        if not is_good:
            return "must be addresses like http://localhost:8081, with commas between them"
        if parts.username is not None:
            return "must hold no user and password; confluent.basic.auth.user.info is for them"
    return None


SCHEMA_REGISTRY_URL: Final = SCHEMAS.strings(
    "confluent.schema.registry.url",
    (),
    "The schema registry, or several instances of one, that topics with confluent.value.schema.validation or "
    "confluent.key.schema.validation are checked by; `--with registry` sets it.",
    check=registry_addresses,
    mark=Mark.WORKS,
)
SCHEMA_REGISTRY_USER: Final = SCHEMAS.password(
    "confluent.basic.auth.user.info",
    "USER:PASSWORD for that registry.",
    mark=Mark.WORKS,
)
