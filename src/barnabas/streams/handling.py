"""What happens to records that cannot be read, processed or written.

    App("shop", on_unreadable="skip", on_failed=lambda failure: "skip" if failure.topic == "tests" else "dead_letter")

Without anything said they become dead letters. A handler is one of the words, or a function that returns one: `dead_letter`,
`skip` (the record is dropped, and state is as before it), `stop` (the app ends with the error, and tries again).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from barnabas.streams.errors import StreamsError
from barnabas.streams.serdes import Unreadable, Unwritable

Word = Literal["dead_letter", "skip", "stop"]
WORDS: Final = ("dead_letter", "skip", "stop")


@dataclass(frozen=True, slots=True)
class Failure:
    """A record that failed. kind: unreadable, failed or unwritable. topic, partition, offset: of the record as it was read;
    unknown in a step after its key has changed. key, value: the bytes of a record that was read, else what the step was
    given, as text."""

    kind: str
    error: Exception
    topic: str = ""
    partition: int = -1
    offset: int = -1
    key: Any = None
    value: Any = None


Handler = Word | Callable[[Failure], Word]


@dataclass(frozen=True, slots=True)
class Handlers:
    """One for each kind of failure."""

    unreadable: Handler = "dead_letter"
    failed: Handler = "dead_letter"
    unwritable: Handler = "dead_letter"

    def __post_init__(self) -> None:
        for name in ("unreadable", "failed", "unwritable"):
            handler = getattr(self, name)
            if not callable(handler) and handler not in WORDS:
                raise StreamsError(
                    f"on_{name} is {handler!r}: it is {', '.join(WORDS)}, or a function that returns one of them"
                )

    def word(self, failure: Failure) -> Word:
        """What is to be done. Raises StreamsError if a function returns something else."""
        handler: Handler = getattr(self, failure.kind)
        word = handler(failure) if callable(handler) else handler
        if word not in WORDS:
            raise StreamsError(
                f"on_{failure.kind} returned {word!r}, none of {', '.join(WORDS)}"
            ) from failure.error
        return word


def kind_of(error: Exception) -> str:
    """What kind of failure an error is."""
    return (
        "unreadable"
        if isinstance(error, Unreadable)
        else "unwritable"
        if isinstance(error, Unwritable)
        else "failed"
    )
