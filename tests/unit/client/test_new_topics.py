"""A new topic is waited for: the controller acknowledges it before every broker has heard of it."""

from __future__ import annotations

from uuid import UUID

from barnabas.client.cluster import Cluster, PartitionView, TopicView
from barnabas.client.errors import BrokerError
from barnabas.client.options import ClientOptions
from barnabas.wire.errors import ErrorCode


class Scripted(Cluster):
    """answers: for each refresh the leaders that the broker names; None: it does not know the topic."""

    def __init__(self, *answers: list[int] | BrokerError | None) -> None:
        super().__init__(ClientOptions(bootstrap=(("127.0.0.1", 1),), deadline_s=0.2, backoff_s=0.001))
        self.answers = list(answers)
        self.asked = 0

    def refresh(self, topics=()):
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BrokerError):
            raise answer
        for name in topics:
            self.topics.pop(name, None)
            if answer is not None:
                views = {index: PartitionView(leader, 0) for index, leader in enumerate(answer)}
                self.topics[name] = TopicView(name, UUID(int=1), False, views)


def test_until_every_partition_has_a_leader():
    cluster = Scripted(None, [1, -1], [1, 2])
    cluster.await_leaders(["orders"])
    assert cluster.asked == 3
    assert [view.leader for view in cluster.topics["orders"].partitions.values()] == [1, 2]


def test_no_longer_than_the_deadline():
    cluster = Scripted(None)
    cluster.await_leaders(["orders"])
    assert cluster.asked > 1


def test_who_may_not_look_at_topics_may_still_create_them():
    cluster = Scripted(BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "looking up topic orders"))
    cluster.await_leaders(["orders"])
    assert cluster.asked == 1
