"""Metrics as MBeans: names, patterns, attributes, rates."""

from __future__ import annotations

import pytest

from barnabas.observe import metrics
from barnabas.observe.beans import Rates, beans, matcher
from barnabas.observe.metric import Distribution, Sample, quoted

ORDERS = "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=orders"


@pytest.mark.parametrize(
    ("pattern", "is_meant"),
    [
        ("messagesin", True),
        ("*messagesin*orders", True),
        ("kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=orders", True),
        ("kafka.server:topic=orders,name=MessagesInPerSec,type=BrokerTopicMetrics", True),
        ("kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec", False),
        ("kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,*", True),
        ("kafka.*:name=Messages*,*", True),
        ("*:*", True),
        (":type=BrokerTopicMetrics,*", True),
        ("kafka.log:*", False),
        ("kafka.server:type=ReplicaManager,*", False),
        ("bytesin", False),
    ],
)
def test_patterns(pattern: str, is_meant: bool) -> None:
    assert matcher(pattern)(ORDERS) is is_meant


def test_a_comma_in_a_value_separates_nothing() -> None:
    name = metrics.REQUESTS.mbean_of(("Pro,duce", "9"))
    assert name == 'kafka.network:type=RequestMetrics,name=RequestsPerSec,request="Pro,duce",version=9'
    assert matcher("kafka.network:type=RequestMetrics,name=RequestsPerSec,request=*,version=9")(name)


def test_values_with_quotes_and_line_ends() -> None:
    assert quoted('a"b\nc\\*') == '"a\\"b\\nc\\\\\\*"'
    assert quoted("plain-name_1.x") == "plain-name_1.x"


def test_the_sum_of_all_topics_has_no_topic_in_its_name() -> None:
    assert metrics.MESSAGES_IN.mbean_of(("",)) == "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec"


def test_attributes() -> None:
    samples = [
        Sample(metrics.MESSAGES_IN, 60, ("orders",)),
        Sample(metrics.PARTITION_COUNT, 3),
        Sample(metrics.CONNECTIONS, 2, ("PLAINTEXT",)),
        Sample(metrics.CONNECTIONS_CREATED, 5, ("PLAINTEXT",)),
        Sample(metrics.TURNS, 4, (), Distribution(4, 8.0, (1, 2, 3, 4, 5, 6), 1, 6)),
    ]
    beans_by_name = beans(samples, Rates(0.0), 30.0)
    assert beans_by_name[ORDERS] == {
        "Count": 60, "MeanRate": 2.0, "OneMinuteRate": 2.0, "FiveMinuteRate": 2.0, "FifteenMinuteRate": 2.0,
        "RateUnit": "SECONDS", "EventType": "messages",
    }  # fmt: skip
    assert beans_by_name["kafka.server:type=ReplicaManager,name=PartitionCount"] == {"Value": 3}
    assert beans_by_name["kafka.server:type=socket-server-metrics,listener=PLAINTEXT"] == {
        "connection-count": 2, "connection-creation-total": 5,
    }  # fmt: skip
    turns = beans_by_name["barnabas.broker:type=EventLoop,name=TurnTimeMs"]
    assert (turns["Count"], turns["Mean"], turns["99thPercentile"], turns["Max"]) == (4, 2.0, 5, 6)
    assert list(beans(samples, Rates(0.0), 30.0, ["partitioncount"])) == [
        "kafka.server:type=ReplicaManager,name=PartitionCount"
    ]


def test_rates_follow_what_happens_and_the_short_one_first() -> None:
    rates = Rates(0.0)
    assert rates.look(("n", ()), 100, 100.0)["OneMinuteRate"] == 1.0
    after = rates.look(("n", ()), 700, 160.0)
    one, five = after["OneMinuteRate"], after["FiveMinuteRate"]
    assert isinstance(one, float)
    assert isinstance(five, float)
    assert 1 < five < one < 10
    assert one == pytest.approx(1 + 9 * (1 - 2.718281828**-1))
