"""Hides the secrets of a pipeline file: values of entries that are declared as secret (shapes.py) are never shown.

A file is shown with MASK in place of its secrets; `${env:NAME}` and `${file:PATH}` remain. In messages (errors, the
status of a server, its log) MASK replaces the values themselves, even if a database driver has put them into its own
message.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from barnabas.pipelines.entries.document import REFERENCE, Item, parse
from barnabas.pipelines.entries.shapes import PASSWORDS, EntryShape, Hidden

MASK: Final = "********"
SHORT: Final = 6
"""A secret with fewer characters may occur in ordinary words, so it is only replaced as a whole word."""
_REFERENCES: Final = re.compile(rf"(?:{REFERENCE.pattern})+")


def secret_values(document: Item, shape: EntryShape) -> frozenset[str]:
    """The secrets of a document, both as they are used and as they are written in it."""
    return frozenset(value for hidden in shape.hidden(document) for value in hidden.values if value)


def hide(text: str, secrets: Collection[str]) -> str:
    """A message with MASK in place of these values."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) < SHORT:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", MASK, text)
        else:
            text = text.replace(secret, MASK)
    return text


def masked(text: str, shape: EntryShape) -> str:
    """The text of a pipeline file with MASK in place of the secrets in it. Raises PipelineError if it is not YAML."""
    by_span = {hidden.item.span: hidden for hidden in shape.hidden(parse(text, "file", fill=False))}
    for span, hidden in sorted(by_span.items(), reverse=True):
        start, end = span
        text = text[:start] + _masked_value(text[start:end], hidden) + text[end:]
    return text


def _masked_value(raw: str, hidden: Hidden) -> str:
    """A value as written in the file, masked."""
    if not hidden.whole:
        return PASSWORDS.sub(_masked_password, raw)
    bare = raw.strip().strip("\"'")
    if _REFERENCES.fullmatch(bare):
        return raw
    return f'"{MASK}"' + raw[len(raw.rstrip()) :]


def _masked_password(match: re.Match[str]) -> str:
    value = match["value"] or match["word"]
    return match[0] if _REFERENCES.fullmatch(value) else f"{match['before'] or match['key']}{MASK}"
