"""Share groups at the broker (KIP-932): `manager` for all groups, `partition` for one group's queue on one partition.

`states` is the share coordinator with its topic, `reading` finds batches by their headers, `fetching` waits, `options`
are those of one group, `dead_letters` writes the records that a group gives up on.
"""

from barnabas.broker.coordinators.shares.manager import Shares

__all__ = ["Shares"]
