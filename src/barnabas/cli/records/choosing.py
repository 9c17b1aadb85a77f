"""`consume --filter`: only the records that fit are written. The language is that of the console's filters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.extras import how_to_install
from barnabas.terminal.errors import CliError, UsageError

if TYPE_CHECKING:
    from barnabas.cli.records.formatting import Writer
    from barnabas.console.records.filters import Filter
    from barnabas.console.records.lazy import Lazy

FilterText = Annotated[
    str | None,
    typer.Option(
        "--filter",
        metavar="TEXT",
        help="Only records that fit, e.g. \"value.country = 'DE' AND amount > 100 AND key LIKE 'shop%'\".",
        show_default=False,
    ),
]


@dataclass(slots=True)
class _Messages:
    """Messages as a source of filters' records. See lazy.Source."""

    messages: Sequence[Any]
    partition: int = 0

    def key(self, row: int) -> bytes | None:
        data: bytes | None = self.messages[row].key()
        return data

    def value(self, row: int) -> bytes | None:
        data: bytes | None = self.messages[row].value()
        return data

    def headers(self, row: int) -> Sequence[tuple[str, bytes | None]]:
        return self.messages[row].headers() or ()


@dataclass(slots=True)
class Sieve:
    """Lets the records that fit through to a writer, at most `left` of them.

    passed: how many of the last list were looked at. fitting: how many of them fitted.
    """

    fits: Filter
    left: int | None = None
    passed: int = 0
    fitting: int = 0
    _source: _Messages = field(default_factory=lambda: _Messages(()))
    _records: dict[str, Lazy] = field(default_factory=dict)

    def writer(self, write: Writer) -> Writer:
        """A writer of the records that fit."""

        def write_chosen(messages: list[Any]) -> bytes:
            chosen = self.chosen(messages)
            return write(chosen) if chosen else b""

        return write_chosen

    def chosen(self, messages: Sequence[Any]) -> list[Any]:
        """Those that fit. What a filter cannot be applied to does not."""
        passed_messages: list[Any] = []
        self._source.messages, self.passed = messages, 0
        for row, message in enumerate(messages):
            if self.left is not None and len(passed_messages) >= self.left:
                break
            self.passed = row + 1
            try:
                if self.fits(self._record(message, row)):
                    passed_messages.append(message)
            except (ArithmeticError, RecursionError, ValueError, TypeError):
                continue
        self.fitting = len(passed_messages)
        if self.left is not None:
            self.left -= len(passed_messages)
        return passed_messages

    def _record(self, message: Any, row: int) -> Lazy:
        topic = message.topic()
        record = self._records.get(topic)
        if record is None:
            from barnabas.console.records.decoding import Decoder
            from barnabas.console.records.lazy import Lazy

            how = ("auto", "auto")
            record = self._records[topic] = Lazy(Decoder(lambda: None), topic, how, self._source)
        record.partition = message.partition()
        record.move(row, message.offset(), message.timestamp()[1])
        return record


def sieve_of(text: str | None, count: int | None) -> Sieve | None:
    """What --filter and -c ask for; None without --filter. Raises UsageError, CliError."""
    if text is None:
        return None
    try:
        from barnabas.console.records.filters import BadFilter, compile_filter
    except ImportError as error:
        raise CliError(f"--filter needs {error.name}: {how_to_install('services')}") from None
    try:
        return Sieve(compile_filter(text), count)
    except BadFilter as error:
        raise UsageError(f"--filter {text[:200]!r} cannot be understood: {error}") from None
