"""Which features ApiVersions lists in which version, as Apache Kafka 4.3 does."""

from __future__ import annotations

import pytest

from barnabas.broker.cluster.features import Features
from barnabas.config.loader import BrokerConfig
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

VERSIONS = ApiVersionsRequest.VERSIONS
LEVEL_0_FROM = 4


@pytest.mark.parametrize("version", VERSIONS)
def test_a_feature_whose_lowest_level_is_0_is_listed_from_version_4_on(version: int) -> None:
    """The Java clients 3.3 to 3.8 ask by version 3, refuse a lowest level of 0 and do not connect."""
    listed = Features(BrokerConfig()).supported(version)
    assert all(feature.min_version >= 1 for feature in listed) or version >= LEVEL_0_FROM
    levels = {feature.name: (feature.min_version, feature.max_version) for feature in listed}
    every = {
        "group.version": (0, 1),
        "share.version": (0, 1),
        "streams.version": (0, 1),
        "transaction.version": (0, 2),
    }
    assert levels == (every if version >= LEVEL_0_FROM else {})


@pytest.mark.parametrize("version", VERSIONS)
def test_the_answer_of_each_version_holds_what_that_version_can(version: int) -> None:
    features = Features(BrokerConfig())
    answer = ApiVersionsResponse(
        supported_features=features.supported(version), finalized_features=features.finalized()
    )
    read = ApiVersionsResponse.decode(answer.encode(version), version)
    assert read.supported_features == features.supported(version)
    assert read.finalized_features == (features.finalized() if version >= 3 else [])


def test_levels_in_effect() -> None:
    levels = {feature.name: feature.max_version_level for feature in Features(BrokerConfig()).finalized()}
    assert levels == {"group.version": 1, "share.version": 1, "streams.version": 1, "transaction.version": 2}


def test_a_feature_that_is_switched_off_has_no_level_in_effect() -> None:
    features = Features(BrokerConfig({"group.coordinator.rebalance.protocols": "classic"}))
    assert "group.version" not in {feature.name for feature in features.finalized()}
    assert "group.version" in {feature.name for feature in features.supported(LEVEL_0_FROM)}
