r"""How `consume` writes a record: `-f` formats, JSON envelopes, or the plain value.

Format words (kcat's): %t topic, %p partition, %o offset, %k key, %K key length, %s value, %S value
length (-1 for null), %R value length as four bytes, %T timestamp in ms, %h headers, %% a percent
sign; \n \r \t \0 \\ and \xNN.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from typing import Any, Final

from barnabas.terminal.errors import UsageError

Writer = Callable[[list[Any]], bytes]
"""Renders a list of confluent_kafka.Message that hold no errors."""

ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\", "e": b"\x1b", "a": b"\a"}
TIMESTAMP_TYPES: Final = ("unknown", "create", "logappend")


def unescape(text: str, option: str) -> bytes:
    r"""Bytes of a command-line text with \n, \t, \0, \xNN. Raises UsageError that names `option`."""
    out = bytearray()
    i = 0
    while i < len(text):
        if text[i] != "\\":
            out += text[i].encode("utf-8", "surrogateescape")
            i += 1
            continue
        following = text[i + 1 : i + 2]
        if following == "x":
            try:
                out += bytes.fromhex(text[i + 2 : i + 4])
            except ValueError:
                raise UsageError(f"{option} {text!r}: \\x needs two hex digits") from None
            i += 4
        elif following in ESCAPES and following:
            out += ESCAPES[following]
            i += 2
        else:
            raise UsageError(
                f"{option} {text!r}: no escape \\{following}; \\n \\r \\t \\0 \\\\ and \\xNN are known"
            )
    return bytes(out)


def value_writer(delimiter: bytes, key_separator: bytes | None, null: bytes) -> Writer:
    """Values, each followed by `delimiter`; before them the key and its separator if asked for."""

    def values(messages: list[Any]) -> bytes:
        # None must become bytes before join; null values are rare, so the fast way is tried first.
        try:
            return delimiter.join([message.value() for message in messages]) + delimiter
        except TypeError:
            return b"".join([(null if (v := m.value()) is None else v) + delimiter for m in messages])

    def pairs(messages: list[Any]) -> bytes:
        parts: list[bytes] = []
        for message in messages:
            key, value = message.key(), message.value()
            parts += (
                null if key is None else key,
                key_separator or b"",
                null if value is None else value,
                delimiter,
            )
        return b"".join(parts)

    return values if key_separator is None else pairs


def format_writer(template: str, null: bytes) -> Writer:
    """A writer for a `-f` format. Raises UsageError for an unknown word."""
    words: dict[str, Callable[[Any], bytes]] = {
        "t": lambda m: m.topic().encode(),
        "p": lambda m: b"%d" % m.partition(),
        "o": lambda m: b"%d" % m.offset(),
        "k": lambda m: null if (key := m.key()) is None else key,
        "K": lambda m: b"%d" % length(m.key()),
        "s": lambda m: null if (value := m.value()) is None else value,
        "S": lambda m: b"%d" % length(m.value()),
        "R": lambda m: struct.pack(">i", length(m.value())),
        "T": lambda m: b"%d" % m.timestamp()[1],
        "h": lambda m: headers_text(m.headers() or (), null),
    }
    layout = ""
    getters = []
    i = 0
    while i < len(template):
        letter = template[i]
        if letter == "%":
            word = template[i + 1 : i + 2]
            if word == "%":
                layout += "%%"
            elif word in words and word:
                layout += "%b"
                getters.append(words[word])
            else:
                raise UsageError(
                    f"-f {template!r}: no format word %{word}; %t %p %o %k %s %T %h %K %S %R are known"
                )
            i += 2
        else:
            width = 4 if template[i : i + 2] == "\\x" else 2 if letter == "\\" else 1
            layout += unescape(template[i : i + width], "-f").decode("latin-1").replace("%", "%%")
            i += width
    pattern = layout.encode("latin-1")

    def write(messages: list[Any]) -> bytes:
        return b"".join([pattern % tuple([get(message) for get in getters]) for message in messages])

    return write


def length(data: bytes | None) -> int:
    """Bytes in `data`, -1 for null."""
    return -1 if data is None else len(data)


def headers_text(headers: Any, null: bytes) -> bytes:
    """Headers as name=value,name=value."""
    return b",".join(name.encode() + b"=" + (null if value is None else value) for name, value in headers)


def text_or_base64(name: str, data: bytes | None) -> dict[str, Any]:
    """`data` under `name` when it is UTF-8, else in base64 under `name_base64`: JSON holds no other bytes."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode("ascii")}


def envelope(message: Any) -> dict[str, Any]:
    """One record as kcat's JSON envelope."""
    kind, timestamp_ms = message.timestamp()
    fields: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "tstype": TIMESTAMP_TYPES[kind],
        "ts": timestamp_ms,
    }
    headers = message.headers()
    if headers:
        fields["headers"] = [text for pair in headers for text in header_texts(*pair)]
    decoded: dict[str, Any] = getattr(message, "json", {})
    for name, data in (("key", message.key), ("payload", message.value)):
        fields |= {name: decoded[name]} if name in decoded else text_or_base64(name, data())
    return fields


def header_texts(name: str, value: bytes | None) -> tuple[str, str | None]:
    """One header as JSON text; bytes that are not UTF-8 are shown with escapes."""
    return name, None if value is None else value.decode("utf-8", "backslashreplace")


def json_writer() -> Writer:
    """One JSON envelope per line."""
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

    def write(messages: list[Any]) -> bytes:
        return "".join([encode(envelope(message)) + "\n" for message in messages]).encode(
            "utf-8", "surrogatepass"
        )

    return write
