"""`barnabas log dump --json`: the lines of the dump as JSON objects, one a line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from barnabas.records.batch import Record
from barnabas.storage.dumping.dump import Dump, DumpOptions

PAIR: Final = re.compile(r"(\w+): (\[.*\](?=$| \w+: )|\S+)")


def rows(dump: Dump, file: Path, options: DumpOptions) -> Iterator[str]:
    """One file as lines of JSON. options: those of the dump. Raises StorageError, OSError."""
    data: list[dict[str, str | None]] = []

    def keep(record: Record) -> tuple[str | None, str | None]:
        # Keys and payloads may hold anything, so they are not taken from the text of the line.
        key, payload = options.decoder(record)
        data.append({"key": key, "payload": payload})
        return None, None

    dump.use(replace(options, decoder=keep))
    for line in dump.lines(file):
        row = row_of(line)
        if line.startswith("|") and data:
            row |= data.pop()
        yield json.dumps({"file": str(file), **row}, ensure_ascii=False)


def row_of(line: str) -> dict[str, Any]:
    """The names and values in a line; a line without any is a remark."""
    text = line.removeprefix("|").strip()
    pairs = PAIR.findall(text)
    if not pairs and text:
        return {"remark": text}
    return {
        "kind": "record" if line.startswith("|") else "entry",
        **{name: value_of(value) for name, value in pairs},
    }


def value_of(text: str) -> Any:
    """A number, true, false, a list of names, or text."""
    if text in ("true", "false"):
        return text == "true"
    if text.startswith("[") and text.endswith("]"):
        return [name for name in text[1:-1].split(",") if name]
    return int(text) if re.fullmatch(r"-?\d+", text) else text
