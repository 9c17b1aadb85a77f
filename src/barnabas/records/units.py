"""Types for numbers that count different things and could be confused.

At run time they are plain ints; mypy keeps them apart. A number gets its type where it is read (a header, a checkpoint,
an index, a request) or computed, since the sum of two is an `int` again. Calling a type costs a function call (50 ns): in
code that runs for every batch, prefer an annotation.
"""

from __future__ import annotations

from typing import NewType

Offset = NewType("Offset", int)
"""The number of a record in its partition."""
Position = NewType("Position", int)
"""A byte position in a segment's file."""
LeaderEpoch = NewType("LeaderEpoch", int)
"""Counts how often a partition has changed its leader."""
ProducerEpoch = NewType("ProducerEpoch", int)
"""Distinguishes producers with the same producer id: an older one is refused."""
TimestampMs = NewType("TimestampMs", int)
"""Milliseconds since 1970-01-01 UTC."""
CoordinatorEpoch = NewType("CoordinatorEpoch", int)
"""Counts how often the partition that stores a transaction's state has changed its leader."""
