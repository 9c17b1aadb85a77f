"""Templates, and how numbers, sizes, times and foreign text look in them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from barnabas.console.said import Said, filled
from barnabas.console.words import LANGUAGES

HERE: Final = Path(__file__).parent
UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""Characters that change how others look, or that terminals obey."""


def visible(text: object) -> str:
    """Text in which control characters, and those that turn the direction of writing, can be seen."""
    return _HIDDEN.sub(_shown, str(text))


def _shown(match: re.Match[str]) -> str:
    number = ord(match[0])
    return chr(0x2400 + number) if number < 0x20 else f"⟨U+{number:04X}⟩"


def size(count: float | None) -> str:
    """Bytes as people read them: 1.5 MiB."""
    if count is None:
        return "–"
    value = float(count)
    for unit in UNITS:
        if abs(value) < 1024 or unit == UNITS[-1]:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("the last unit takes everything")


def number(value: float | None, digits: int = 0) -> str:
    """A number with thin spaces between thousands."""
    if value is None:
        return "–"
    return f"{value:,.{digits}f}".replace(",", "\u202f")


def rate(value: float | None) -> str:
    """Records per second."""
    if value is None:
        return "–"
    return number(value, 0 if value >= 10 or value == 0 else 1)


def moment(ms: float | None) -> str:
    """A time in milliseconds since 1970, in UTC."""
    if ms is None or ms < 0:
        return "–"
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"
    except (OverflowError, ValueError, OSError):
        return str(ms)


def encoded(name: object) -> str:
    """A name as one part of a path."""
    return quote(str(name), safe="", errors="surrogatepass") or "%00"


def decoded_json(value: Any) -> str:
    """A JSON value with indentation."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=plain)


def json_line(value: Any) -> str:
    """A JSON value in one line."""
    return visible(json.dumps(value, ensure_ascii=False, default=plain))


def plot_data(graph: Mapping[str, Any]) -> str:
    """A graph for the script that draws it."""
    return json.dumps({"unit": graph["unit"], "lines": graph["lines"]}, ensure_ascii=False, default=plain)


def amount(value: float | None, unit: str) -> str:
    """A value with its unit."""
    return size(value) if unit == "bytes" else f"{rate(value)} {unit}"


def quoted(text: object) -> str:
    """A value in a search for words: in quotation marks if it is not one word."""
    word = str(text)
    if re.fullmatch(r"[\w.@/-]+", word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


def plain(value: Any) -> Any:
    """What JSON does not know of what pages return."""
    if isinstance(value, Said):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


def json_bytes(value: Any) -> bytes:
    """An answer of the API."""
    text = json.dumps(value, ensure_ascii=False, default=plain, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace").encode()


def translated(lang: str, text: str | Said, **values: Any) -> str:
    """A sentence in a language, its gaps filled. What has no translation stays English."""
    if isinstance(text, Said):
        inner = {
            k: translated(lang, v) if isinstance(v, Said) else visible(v) for k, v in text.values.items()
        }
        return translated(lang, text.text, **inner, **values)
    translation = LANGUAGES.get(lang, {}).get(text, text)
    return filled(translation, values)


@pass_context
def _t(context: Context, text: str | Said, **values: Any) -> str:
    return translated(context.get("lang", "en"), text, **values)


@lru_cache(1)
def asset_version() -> str:
    """Changes whenever a static file does."""
    hasher = hashlib.sha256()
    for path in sorted((HERE / "static").rglob("*")):
        if path.is_file():
            hasher.update(path.read_bytes())
    return hasher.hexdigest()[:12]


@pass_context
def _with_query(context: Context, **changes: Any) -> str:
    """The page's own address with some fields of its query changed; None takes one out."""
    fields = {name: value for name, value in context["query"].items() if value not in (None, "", [])}
    for name, value in changes.items():
        if value is None:
            fields.pop(name, None)
        else:
            fields[name] = value
    return "?" + urlencode(fields, doseq=True)


def _bar(value: float, whole: float, label: str, kind: str = "") -> Markup:
    """A bar that shows a share. Style attributes are forbidden by the page's policy, so it is a picture."""
    share = 0.0 if whole <= 0 else min(max(value / whole, 0.0), 1.0)
    return Markup(
        '<svg class="bar {kind}" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label="{label}">'
        '<rect class="bar-all" width="100" height="8"/><rect class="bar-part" width="{width}" height="8"/></svg>'
    ).format(kind=kind, label=label, width=f"{share * 100:.1f}")


def make_environment() -> Environment:
    """The templates of the layout and of all pages; everything is escaped."""
    environment = Environment(
        loader=FileSystemLoader([HERE / "templates", HERE / "pages"]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: Mapping[str, Callable[..., Any]] = {
        "size": size, "number": number, "rate": rate, "moment": moment, "part": encoded, "visible": visible,
        "pretty": decoded_json, "line": json_line,
        "tojson_plain": json_line, "plot_data": plot_data, "amount": amount, "quoted": quoted,
    }  # fmt: skip
    environment.filters.update(filters)
    environment.globals.update(t=_t, with_query=_with_query, bar=_bar, escape=escape)
    return environment
