"""`app.store("counts").get("be")`: what a running app keeps, read from the files beside its checkpoint, or over HTTP.

The rows are as of the app's last micro-batch; they can be read while the app runs, and after it has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from barnabas.pipelines.views.lookup import ROWS_MAX, Asked, NothingYet, Reader
from barnabas.pipelines.views.store import ViewError
from barnabas.pipelines.views.stores import kept_row, shown_key
from barnabas.streams.errors import StreamsError
from barnabas.streams.records import Window, Windowed
from barnabas.streams.texts import Classes, NotKept, text_of, value_of

Row = tuple[Any, Any, int | None]
"""Key, value and timestamp."""
PAGE: Final = ROWS_MAX


class StoreReader:
    """A store of an app. Keys of windows are Windowed; `fetch` finds all windows of a key. Methods raise StreamsError if the
    app has kept nothing yet, or its file cannot be read."""

    def __init__(self, name: str, path: Path, classes: Classes) -> None:
        self.name = name
        self._classes = classes
        self._reader = Reader(path)

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key."""
        for kept_key, value, _ in self._rows(key):
            if kept_key == key:
                return value
        return default

    def get_with_timestamp(self, key: Any) -> tuple[Any, int | None] | None:
        """The value of a key and its timestamp, in milliseconds since 1970."""
        return next(((value, at) for kept_key, value, at in self._rows(key) if kept_key == key), None)

    def fetch(self, key: Any, first: int | None = None, last: int | None = None) -> list[tuple[Window, Any]]:
        """The windows of a key that begin from `first` to `last`, with their values."""
        return [
            (kept_key.window, value)
            for kept_key, value, _ in self._rows(key)
            if isinstance(kept_key, Windowed)
            and kept_key.key == key
            and (first is None or first <= kept_key.start)
            and (last is None or kept_key.start <= last)
        ]

    def items(self) -> Iterator[tuple[Any, Any]]:
        """All keys with their values."""
        return ((key, value) for key, value, _ in self._rows())

    all = items

    def __getitem__(self, key: Any) -> Any:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: Any) -> bool:
        return self.get(key) is not None

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self.items())

    def __len__(self) -> int:
        return sum(1 for _ in self.items())

    def close(self) -> None:
        """Closes the file."""
        self._reader.close()

    def _rows(self, key: Any = None) -> Iterator[Row]:
        """Those of a key, or all."""
        asked: tuple[str, ...] = ()
        if key is not None:
            asked = (shown_key(text_of(key.key if isinstance(key, Windowed) else key)),)
        after: str | None = None
        while True:
            try:
                rows, after = self._reader.rows(Asked(key=asked, limit=PAGE, after=after))
            except NothingYet:
                raise StreamsError(
                    f"the store {self.name} has nothing yet: the app has to run, and to have ended a micro-batch "
                    f"({self._reader.path})"
                ) from None
            except ViewError as error:
                raise StreamsError(f"the store {self.name} cannot be read: {error}") from error
            yield from (self._row(row) for row in rows)
            if after is None:
                return

    def _row(self, row: Mapping[str, Any]) -> Row:
        key_text, start, end, value_text, at = kept_row(row)
        try:
            key, value = value_of(key_text, self._classes), value_of(value_text, self._classes)
        except NotKept as error:
            raise StreamsError(f"the store {self.name}: {error}") from error
        if start is None:
            return key, value, at
        return Windowed(key, Window(start, FOREVER if end is None else end)), value, at


FOREVER: Final = (1 << 63) - 1
"""The end of a window that has none."""
