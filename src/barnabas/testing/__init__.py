"""A real broker inside a test: started in this process on a free port, and stopped when the block ends.

    from barnabas.testing import Broker

    with Broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})

See docs/testing.md; `barnabas.testing.plugin` has pytest fixtures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.testing.broker import Broker, Snapshot
    from barnabas.testing.faults import Faults

__all__ = ["Broker", "Faults", "Snapshot"]


def __getattr__(name: str) -> Any:
    """The broker is imported when it is first used, since pytest loads this package's plugin in every run."""
    if name == "Faults":
        from barnabas.testing.faults import Faults

        return Faults
    if name in __all__:
        from barnabas.testing import broker

        return getattr(broker, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
