"""Secrets of a pipeline file: what the declarations of its entries (shapes.py) name as secret is shown nowhere.

A file is shown with MASK in the place of its secrets; `${env:NAME}` and `${file:PATH}` stay. Messages (errors, status of a
server, its log) lose the values themselves, wherever those came from: also where a driver tells them of its own accord.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from barnabas.pipelines.document import REFERENCE, Item, parse
from barnabas.pipelines.shapes import PASSWORDS, Hidden, Shape

MASK: Final = "********"
SHORT: Final = 6
"""A secret with fewer characters may be a part of ordinary words: only whole words are taken for it."""
_REFERENCES: Final = re.compile(rf"(?:{REFERENCE.pattern})+")


def secret_values(document: Item, shape: Shape) -> frozenset[str]:
    """The secrets of a document, as they are used and as they were written."""
    return frozenset(value for hidden in shape.hidden(document) for value in hidden.values if value)


def hide(text: str, secrets: Collection[str]) -> str:
    """A message without these values."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) < SHORT:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", MASK, text)
        else:
            text = text.replace(secret, MASK)
    return text


def masked(text: str, shape: Shape) -> str:
    """A pipeline file without the secrets that were written into it."""
    found = {hidden.item.span: hidden for hidden in shape.hidden(parse(text, "file", fill=False))}
    for span, hidden in sorted(found.items(), reverse=True):
        start, end = span
        text = text[:start] + _masked_value(text[start:end], hidden) + text[end:]
    return text


def _masked_value(raw: str, hidden: Hidden) -> str:
    """A value as it stands in the file, masked."""
    if not hidden.whole:
        return PASSWORDS.sub(_masked_password, raw)
    bare = raw.strip().strip("\"'")
    if _REFERENCES.fullmatch(bare):
        return raw
    return f'"{MASK}"' + raw[len(raw.rstrip()) :]


def _masked_password(match: re.Match[str]) -> str:
    value = match["value"] or match["word"]
    return match[0] if _REFERENCES.fullmatch(value) else f"{match['before'] or match['key']}{MASK}"
