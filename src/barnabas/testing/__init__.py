"""A real broker inside a test: started in this process on a free port, gone when the block ends.

    from barnabas.testing import Broker

    with Broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})

See docs/testing.md; `barnabas.testing.plugin` has pytest fixtures.
"""

from barnabas.testing.broker import Broker, Snapshot
from barnabas.testing.faults import Faults

__all__ = ["Broker", "Faults", "Snapshot"]
