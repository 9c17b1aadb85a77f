"""What a controller counts of its elections."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from barnabas.broker.cluster.controller import Elections
from barnabas.cores.cluster_image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from barnabas.cores.elections import elect

REPLICAS = (1, 2)


def test_an_unclean_election_counts_once_however_often_its_partition_changes_until_it_has_recovered() -> None:
    image, elections = ClusterImage(), Elections()
    topic = image.topics["t"] = TopicImage("t", UUID(int=1), {})

    def write(partition: PartitionImage) -> int:
        topic.partitions[0] = partition
        elections.note(image, [("t", 0)])
        return elections.unclean

    led_by_1 = PartitionImage(REPLICAS, leader=1, leader_epoch=0, isr=(1,))
    assert write(led_by_1) == 0
    assert write(elect(led_by_1, [1, 2], unclean=True)) == 0
    led_by_2 = elect(led_by_1, [2], unclean=True)
    assert write(led_by_2) == 1
    assert write(elect(led_by_2, [], unclean=True)) == 1
    assert topic.partitions[0].leader == NO_LEADER
    assert write(elect(topic.partitions[0], [2], unclean=True)) == 1
    assert write(replace(led_by_2, isr=REPLICAS, recovering=False)) == 1
    assert write(elect(replace(led_by_2, isr=(2,), recovering=False), [1], unclean=True)) == 2


def test_a_topic_that_was_deleted_meanwhile_counts_nothing() -> None:
    elections = Elections()
    elections.note(ClusterImage(), [("gone", 0)])
    assert elections.unclean == 0
