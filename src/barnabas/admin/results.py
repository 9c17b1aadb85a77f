"""The results of a request for several resources: one that fails does not hide the others.

results = admin.topics.delete(["orders", "ordres"])
results.done          # {"orders": None}
results.failed        # {"ordres": ResourceError("cannot delete topic ordres: ...")}
results["ordres"]     # raises that error
results.require()     # the values of all, or the first error
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from barnabas.client.errors import ClientError

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class Results(Generic[K, V]):
    """done: the values, failed: the errors, both by resource in the order in which they were asked for."""

    done: Mapping[K, V] = field(default_factory=dict)
    failed: Mapping[K, ClientError] = field(default_factory=dict)

    def __getitem__(self, key: K) -> V:
        """The value of one resource. Raises its error, or KeyError if it was not asked for."""
        if key in self.failed:
            raise self.failed[key]
        return self.done[key]

    def __iter__(self) -> Iterator[K]:
        yield from self.done
        yield from self.failed

    def __len__(self) -> int:
        return len(self.done) + len(self.failed)

    def __contains__(self, key: object) -> bool:
        return key in self.done or key in self.failed

    def require(self) -> Mapping[K, V]:
        """The values of all. Raises the first error if there is one."""
        for error in self.failed.values():
            raise error
        return self.done

    def except_for(self, *codes: int) -> Results[K, V]:
        """These results without the failures with these error codes (`ErrorCode.TOPIC_ALREADY_EXISTS`)."""
        kept = {key: error for key, error in self.failed.items() if getattr(error, "code", 0) not in codes}
        return Results(self.done, kept)

    def map(self, change: Callable[[V], W]) -> Results[K, W]:
        """The same with every value changed."""
        return Results({key: change(value) for key, value in self.done.items()}, self.failed)
