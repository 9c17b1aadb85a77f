"""The cluster features that ApiVersions announces: the newer protocols that clients may use.

Level 0 means that a feature is known and switched off. Source: KIP-584; KIP-848 for group.version, KIP-932 for
share.version, KIP-1071 for streams.version, KIP-890 for transaction.version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.config import broker_groups
from barnabas.wire.messages.api_versions import FinalizedFeatureKey, SupportedFeatureKey

if TYPE_CHECKING:
    from barnabas.config.loader import BrokerConfig

GROUP_VERSION: Final = "group.version"
SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"
TRANSACTION_VERSION: Final = "transaction.version"
LEVEL_0_SENT_FROM: Final = 4
"""The first version of ApiVersions whose clients accept a lowest level of 0."""


class Feature(NamedTuple):
    """One feature: the levels that this broker supports, and the level in effect."""

    name: str
    min_level: int
    max_level: int
    level: int


class Features:
    """The features, as determined by a configuration."""

    def __init__(self, config: BrokerConfig) -> None:
        protocols = config.get(broker_groups.GROUP_COORDINATOR_REBALANCE_PROTOCOLS)
        self.consumer_groups = "consumer" in protocols
        self.streams_groups = "streams" in protocols
        self.all = (
            Feature(GROUP_VERSION, 0, 1, int(self.consumer_groups)),
            Feature(SHARE_VERSION, 0, 1, 1),
            Feature(STREAMS_VERSION, 0, 1, int(self.streams_groups)),
            Feature(TRANSACTION_VERSION, 0, 2, 2),
        )

    def supported(self, api_version: int) -> list[SupportedFeatureKey]:
        """The features and their levels as ApiVersions lists them in this version.

        Features whose lowest level is 0 are left out below version 4: the Java clients 3.3 to 3.8 refuse such a feature
        and do not connect. Source: KAFKA-17011, KAFKA-17492.
        """
        return [
            SupportedFeatureKey(
                name=feature.name, min_version=feature.min_level, max_version=feature.max_level
            )
            for feature in self.all
            if feature.min_level or api_version >= LEVEL_0_SENT_FROM
        ]

    def finalized(self) -> list[FinalizedFeatureKey]:
        """The levels in effect, the same in all versions of ApiVersions. Features at level 0 are left out, as in Kafka."""
        return [
            FinalizedFeatureKey(
                name=feature.name, max_version_level=feature.level, min_version_level=feature.level
            )
            for feature in self.all
            if feature.level
        ]
