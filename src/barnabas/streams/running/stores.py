"""What nodes keep: entries by store and key in a mapping of texts, and what has to be looked at by its time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, MutableMapping
from typing import Any, Final

from barnabas.streams.texts import Classes, text_of, value_of

SEPARATOR: Final = "\x1f"
TIMES: Final = "\x1etimes"
"""After a store's name: that of the entries about its times: spans of time with notes, how many each has, and pages of
these."""
SPAN_MS: Final = 4096
PAGE: Final = 64


class Stores:
    """The stores of one task. Keys are any values that `texts` knows; what is put must not be changed afterwards. shown:
    those whose changes are noted."""

    def __init__(self, kept: MutableMapping[str, str], classes: Classes) -> None:
        self.kept = kept
        self.classes = classes
        self.shown: Collection[str] = ()
        self.changed: dict[tuple[str, str], None] = {}
        self._lists: dict[str, tuple[str, list[Any]]] = {}

    def get(self, store: str, key: Any) -> Any:
        """What is kept for a key; None if nothing is."""
        text = self.kept.get(f"{store}{SEPARATOR}{text_of(key)}")
        return None if text is None else value_of(text, self.classes)

    def put(self, store: str, key: Any, value: Any) -> None:
        """Keeps a value; None removes it."""
        named = text_of(key)
        name = f"{store}{SEPARATOR}{named}"
        if value is None:
            self.kept.pop(name, None)
        else:
            self.kept[name] = text_of(value)
        if store in self.shown:
            self.changed[store, named] = None

    def changes(self) -> Iterator[tuple[str, str, str | None]]:
        """Store, key and what is kept, as texts, of what has changed in shown stores since the last call."""
        for store, key in self.changed:
            yield store, key, self.kept.get(f"{store}{SEPARATOR}{key}")
        self.changed = {}

    def items(self, store: str) -> Iterator[tuple[Any, Any]]:
        """All keys and what is kept for them, in the order of the keys' texts. Reads the whole state of the task."""
        begin = store + SEPARATOR
        for name in sorted(name for name in self.kept if name.startswith(begin)):
            yield value_of(name[len(begin) :], self.classes), value_of(self.kept[name], self.classes)

    # --- by time ------------------------------------------------------------------------------------------

    def note(self, store: str, at: int, key: Any) -> None:
        """Notes that a key of a store has to be looked at when the time `at` has come; it may be noted several times."""
        notes, span = store + TIMES, at // SPAN_MS
        spans = self._known(notes, "")
        if span not in spans:
            self.put(notes, "", sorted([*spans, span]))
        count = self.get(notes, span) or 0
        note, page = f"[{at},{text_of(key)}]", self._name(notes, [span, count // PAGE])
        if count % PAGE:
            # A page grows as text, because to read and to write it for each note takes longer than all else.
            before = self.kept[page]
            if before.endswith((f",{note}]", f"[{note}]")):
                return
            self.kept[page] = f"{before[:-1]},{note}]"
        else:
            self.kept[page] = f"[{note}]"
        self.put(notes, span, count + 1)

    def due(self, store: str, until: int) -> list[tuple[int, Any]]:
        """Removes and returns what was noted for times up to `until`, in the order of times and then of notes."""
        notes = store + TIMES
        spans = self._known(notes, "")
        if not spans or spans[0] > until // SPAN_MS:
            return []
        keys_due: list[tuple[int, Any]] = []
        reached = [span for span in spans if span <= until // SPAN_MS]
        for span in reached:
            keys_due += self._taken(notes, span, until)
        left = [span for span in reached if self.get(notes, span) is not None] + spans[len(reached) :]
        if left != spans:
            self.put(notes, "", left or None)
        return sorted(keys_due, key=lambda one: one[0])

    def earliest(self, store: str) -> int:
        """The earliest time that was noted; there has to be one."""
        notes = store + TIMES
        span = self._known(notes, "")[0]
        times: list[int] = [
            at for page in self._pages(notes, span) for at, _ in self._known(notes, [span, page])
        ]
        return min(times)

    def _pages(self, notes: str, span: int) -> range:
        return range(-(-(self.get(notes, span) or 0) // PAGE))

    def _taken(self, notes: str, span: int, until: int) -> list[tuple[int, Any]]:
        """Removes and returns what was noted for a span of time."""
        keys_due: list[tuple[int, Any]] = []
        kept: list[Any] = []
        pages = self._pages(notes, span)
        for page in pages:
            for at, key in self._known(notes, [span, page]):
                if at <= until:
                    keys_due.append((at, key))
                else:
                    kept.append([at, key])
        if not keys_due:
            return []
        whole = [kept[begin : begin + PAGE] for begin in range(0, len(kept), PAGE)]
        for page in pages:
            self.put(notes, [span, page], whole[page] if page < len(whole) else None)
        self.put(notes, span, len(kept) or None)
        return keys_due

    def _name(self, store: str, key: Any) -> str:
        return f"{store}{SEPARATOR}{text_of(key)}"

    def _known(self, store: str, key: Any) -> list[Any]:
        """A list that is kept, which must not be changed; it is read again only when it has changed."""
        name = self._name(store, key)
        text = self.kept.get(name)
        if text is None:
            return []
        known = self._lists.get(name)
        if known is None or known[0] is not text:
            known = self._lists[name] = (text, value_of(text, self.classes))
        entries: list[Any] = known[1]
        return entries
