"""An inverted index beside each Parquet file of a table: which blocks of rows have which words.

The index of `part-1.parquet` is `_index/part-1.parquet.tokens`, a Parquet file of its own: one row per word, sorted, with
the numbers of the blocks. A word that is in half of the blocks or more says nothing and is kept without them. Its metadata
say how many rows of each level there are in each minute, so that a histogram reads no rows. Delta Lake does not look at
folders whose names begin with an underscore. A file without an index is read whole.
"""

from __future__ import annotations

import json
import os
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from barnabas.logs.rows import MINUTE_MS
from barnabas.logs.words import Words

BLOCK_ROWS: Final = 1024
FOLDER: Final = "_index"
SUFFIX: Final = ".tokens"
ROW_GROUP: Final = 1 << 12
TOKEN_CHARACTERS_MAX: Final = 64
"""Of longer words, only the beginning is in the index."""
WORDS: Final = re.compile(r"[^\W]+")
TEXTS: Final = ("message", "fields")
WHOLE: Final = ("level", "host", "path")


def index_path(file: Path) -> Path:
    """Where the index of a data file is."""
    return file.parent / FOLDER / f"{file.name}{SUFFIX}"


def build(file: Path) -> int:
    """Index one data file; the bytes of its index. Raises OSError, pa.ArrowException."""
    words = Words(TOKEN_CHARACTERS_MAX)
    minutes: Counter[tuple[str, int]] = Counter()
    number = 0
    with pq.ParquetFile(file) as source:
        names = [name for name in (*TEXTS, *WHOLE, "time") if name in source.schema_arrow.names]
        rest: pa.Table | None = None
        for batch in source.iter_batches(BLOCK_ROWS * 16, columns=names):
            batch_table = pa.table(batch)
            if "time" in names:
                minutes.update(minutes_of(batch_table))
                batch_table = batch_table.drop_columns("time")
            table = batch_table if rest is None else pa.concat_tables([rest, batch_table])
            whole = len(table) - len(table) % BLOCK_ROWS
            for start in range(0, whole, BLOCK_ROWS):
                _add(words, number, table.slice(start, BLOCK_ROWS))
                number += 1
            rest = table.slice(whole)
        if rest is not None and len(rest):
            _add(words, number, rest)
            number += 1
        rows, ends = source.metadata.num_rows, [*ends_of(source)]
    counts = [[level, minute, count] for (level, minute), count in sorted(minutes.items())]
    metadata = {"rows": str(rows), "ends": json.dumps(ends)}
    if "time" in names:
        metadata["minutes"] = json.dumps(counts, ensure_ascii=False, separators=(",", ":"))
    return _write(index_path(file), words, number, metadata)


def minutes_of(table: pa.Table) -> dict[tuple[str, int], int]:
    """How many rows there are of each level in each minute (ms since 1970 at which it begins)."""
    times = milliseconds_of(table["time"])
    minute = pc.multiply(pc.divide(times, MINUTE_MS), MINUTE_MS)
    level = pc.fill_null(table["level"], "") if "level" in table.column_names else pa.array([""] * len(table))
    counts = (
        pa.table({"level": level, "minute": minute})
        .group_by(["level", "minute"])
        .aggregate([([], "count_all")])
    )
    columns = [counts[name].to_pylist() for name in ("level", "minute", "count_all")]
    return {(level, minute): count for level, minute, count in zip(*columns, strict=True)}


def milliseconds_of(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times as ms since 1970."""
    return pc.cast(pc.cast(times, pa.timestamp("ms"), safe=False), pa.int64())


def ends_of(source: pq.ParquetFile) -> Iterator[tuple[int, int]]:
    """The highest offset of each partition of the topic in a file."""
    if not {"partition", "offset"} <= {*source.schema_arrow.names}:
        return
    table = source.read(columns=["partition", "offset"])
    ends = table.group_by("partition").aggregate([("offset", "max")])
    for part, offset in zip(ends["partition"].to_pylist(), ends["offset_max"].to_pylist(), strict=True):
        if part is not None and offset is not None:
            yield part, offset


def _add(words: Words, number: int, table: pa.Table) -> None:
    """Note the words of one block, and the values of columns that are compared as a whole."""
    for name in table.column_names:
        if name in WHOLE:
            for value in pc.unique(table[name]).drop_null().to_pylist():
                if value:
                    words.add_word(number, cut(whole_token(name, value)))
        elif name in TEXTS:
            for texts in pc.cast(table[name], pa.string()).chunks:
                index_texts(words, number, texts)


def index_texts(words: Words, number: int, texts: pa.StringArray) -> None:
    _, ends, data = texts.buffers()
    if data is None:
        return  # nothing but nulls and empty texts
    offsets = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    for row in words.add_texts(number, offsets.data, memoryview(data).cast("B")):
        for word in words_of(texts[row].as_py()):
            words.add_word(number, cut(word))


def cut(token: str) -> bytes:
    """What the index has of a word."""
    return token[:TOKEN_CHARACTERS_MAX].encode()


def words_of(text: str) -> set[str]:
    """The words of a text."""
    return {*WORDS.findall(text.lower())}


def _write(path: Path, words: Words, count: int, metadata: dict[str, str]) -> int:
    """said: what is known of the file besides its words."""
    size = len(words)
    tokens = pa.StringArray.from_buffers(size, *map(pa.py_buffer, words.texts()))
    ends, numbers = map(pa.py_buffer, words.blocks((count - 1) // 2 if count > 1 else count))
    values = pa.Int32Array.from_buffers(pa.int32(), numbers.size // 4, [None, numbers])
    lists = pa.ListArray.from_arrays(pa.Int32Array.from_buffers(pa.int32(), size + 1, [None, ends]), values)
    order = pc.sort_indices(tokens)
    metadata = {**metadata, "blocks": str(count), "block_rows": str(BLOCK_ROWS)}
    table = pa.table({"token": tokens.take(order), "blocks": lists.take(order)}).replace_schema_metadata(
        metadata
    )
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_suffix(".tmp")
    pq.write_table(
        table, temporary, compression="zstd", row_group_size=ROW_GROUP, use_dictionary=False,
        column_encoding={"token": "DELTA_BYTE_ARRAY", "blocks.list.element": "DELTA_BINARY_PACKED"},
    )  # fmt: skip
    os.replace(temporary, path)
    return path.stat().st_size


def whole_token(column: str, value: str) -> str:
    """What stands for a column's whole value among the words; no word contains `=`."""
    return f"{column}={value.lower()}"


class Index:
    """The index of one data file."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, pa.ArrowException."""
        self._source = pq.ParquetFile(path)
        metadata = self._source.schema_arrow.metadata or {}
        self.count = int(metadata[b"blocks"])
        self.rows = int(metadata[b"rows"])
        self.ends: list[tuple[int, int]] = json.loads(metadata[b"ends"])
        """By partition of the topic: the highest offset in the file."""
        self._minutes = metadata.get(b"minutes")
        self._tokens: pa.Table | None = None

    def close(self) -> None:
        """Close the file."""
        self._source.close()

    def minutes(self) -> list[tuple[str, int, int]] | None:
        """By level and minute (ms since 1970 at which it begins): how many rows; None in an index that does not know it."""
        return None if self._minutes is None else [(*row,) for row in json.loads(self._minutes)]

    def blocks_of(self, token: str, part: str) -> np.ndarray[Any, Any]:
        """See Lookup."""
        blocks = np.zeros(self.count, bool)
        token = token[:TOKEN_CHARACTERS_MAX]
        for table in self._candidates(token, part):
            column = table["token"]
            if part == "":
                mask = pc.equal(column, token)
            elif part == "prefix":
                mask = pc.starts_with(column, token)
            else:
                mask = pc.match_substring(column, token)
            chosen = table.filter(mask)["blocks"]
            for chunk in chosen.chunks:
                if len(chunk) and pc.min(pc.list_value_length(chunk)).as_py() == 0:
                    blocks[:] = True
                    return blocks
                blocks[np.asarray(chunk.flatten())] = True
        return blocks

    def _candidates(self, token: str, part: str) -> list[pa.Table]:
        """The row groups that may have a word, by their lowest and highest one."""
        metadata = self._source.metadata
        if part == "inside":
            if self._tokens is None:
                self._tokens = self._source.read()
            return [self._tokens]
        numbers = range(metadata.num_row_groups)
        first = bisect_left(numbers, token, key=lambda number: _highest(metadata, number))
        wanted = []
        for number in numbers[first:]:
            lowest = metadata.row_group(number).column(0).statistics.min
            if lowest > token and not (part and lowest.startswith(token)):
                break
            wanted.append(number)
        return [self._source.read_row_groups(wanted)] if wanted else []


def _highest(metadata: pq.FileMetaData, number: int) -> str:
    """The last word of a row group."""
    highest: str = metadata.row_group(number).column(0).statistics.max
    return highest


def opened(file: Path) -> Index | None:
    """The index of a data file; None if it has none that can be read."""
    try:
        return Index(index_path(file))
    except (OSError, pa.ArrowException, KeyError, ValueError):
        return None
