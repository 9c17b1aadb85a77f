"""The cluster features that ApiVersions announces: which newer protocols clients may speak here.

A level of 0 says that a feature is known and switched off. Source: KIP-584; KIP-848 for
group.version, KIP-932 for share.version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.config import broker_groups
from barnabas.wire.messages.api_versions import FinalizedFeatureKey, SupportedFeatureKey

if TYPE_CHECKING:
    from barnabas.config.loader import BrokerConfig

GROUP_VERSION: Final = "group.version"
SHARE_VERSION: Final = "share.version"


class Feature(NamedTuple):
    """One feature: the levels that this broker knows, and the one that holds."""

    name: str
    min_level: int
    max_level: int
    level: int


class Features:
    """What a configuration makes of the features."""

    def __init__(self, config: BrokerConfig) -> None:
        protocols = config.get(broker_groups.GROUP_COORDINATOR_REBALANCE_PROTOCOLS)
        self.consumer_groups = "consumer" in protocols
        self.all = (
            Feature(GROUP_VERSION, 0, 1, int(self.consumer_groups)),
            Feature(SHARE_VERSION, 0, 1, 1),
        )

    def supported(self) -> list[SupportedFeatureKey]:
        return [
            SupportedFeatureKey(name=one.name, min_version=one.min_level, max_version=one.max_level)
            for one in self.all
        ]

    def finalized(self) -> list[FinalizedFeatureKey]:
        """Features at level 0 are left out, as Kafka leaves them out."""
        return [
            FinalizedFeatureKey(name=one.name, max_version_level=one.level, min_version_level=one.level)
            for one in self.all
            if one.level
        ]
