"""Option declarations: parsing, limits, formatting, and what the tables hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.config.broker_options import (
    AREAS,
    BROKER,
    RETIRED,
    TOPIC_SYNONYM,
    broker_synonyms,
    listener_base_name,
)
from barnabas.config.client_options import CLIENT_METRICS, QUOTA
from barnabas.config.group_options import GROUP, GROUP_LIMITS, GROUP_SYNONYM
from barnabas.config.option import (
    INTEGER_RANGE,
    ConfigError,
    Mark,
    Mode,
    OptionTable,
    OptionType,
    format_value,
)
from barnabas.config.topic_options import TOPIC

TABLES = [BROKER, TOPIC, GROUP, CLIENT_METRICS, QUOTA]


def table() -> OptionTable:
    return OptionTable("test")


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.title)
def test_every_default_is_a_value_that_may_be_set(table: OptionTable) -> None:
    for option in table:
        if option.default is not None and option.name != "request_percentage":
            text = option.format(option.default)
            assert text is not None
            assert option.parse(text) == option.default, option.name


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.title)
def test_every_option_is_explained_in_its_own_sentence(table: OptionTable) -> None:
    for option in table:
        assert option.doc.strip().endswith("."), option.name


def test_topic_configs_have_the_same_default_as_their_broker_option() -> None:
    for topic_name, broker_name in TOPIC_SYNONYM.items():
        broker, topic = BROKER[broker_name], TOPIC[topic_name]
        if broker.default is not None:
            assert broker.default == topic.default, topic_name
        assert broker.mode is Mode.CLUSTER, broker_name
        assert broker.kind is topic.kind, topic_name


def test_synonyms_point_at_options_that_exist() -> None:
    assert all(name in BROKER for name in GROUP_SYNONYM.values())
    assert all(name in BROKER for pair in GROUP_LIMITS.values() for name in pair if name)
    for option in BROKER:
        assert all(name in BROKER for name in broker_synonyms(option.name))


def test_no_retired_name_is_an_option_and_areas_do_not_overlap() -> None:
    assert not set(RETIRED) & set(BROKER.names())
    assert sum(len(area) for area in AREAS) == len(BROKER)


def test_integers_are_read_as_java_reads_them() -> None:
    option = table().integer("n", 1, "doc", lo=-5)
    assert option.parse(" -5 ") == -5
    assert option.parse("+7") == 7
    for text in ("", "1_000", "0x10", "1.0", "1k", "٣", "2147483648", "-"):
        with pytest.raises(
            ConfigError, match=r"Not a number of type INT \(allowed: a whole number from -5 to"
        ):
            option.parse(text)
    with pytest.raises(ConfigError, match="Invalid value -6 for configuration n: Value must be at least -5"):
        option.parse("-6")


@pytest.mark.parametrize("kind", [OptionType.INT, OptionType.LONG, OptionType.SHORT])
def test_integer_limits_are_those_of_the_type(kind: OptionType) -> None:
    option = {
        OptionType.INT: table().integer,
        OptionType.LONG: table().long,
        OptionType.SHORT: table().short,
    }[kind]("n", 0, "doc")
    for limit in INTEGER_RANGE[kind]:
        assert option.parse(str(limit)) == limit
    for beyond in (INTEGER_RANGE[kind][0] - 1, INTEGER_RANGE[kind][1] + 1):
        with pytest.raises(ConfigError):
            option.parse(str(beyond))


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_longs_round_trip(value: int) -> None:
    option = table().long("n", 0, "doc")
    assert option.parse(option.format(value) or "") == value


@given(
    st.lists(st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=","), min_size=1))
)
def test_lists_round_trip(items: list[str]) -> None:
    option = table().strings("n", (), "doc")
    assert option.parse(option.format(tuple(items)) or "") == tuple(items)


def test_booleans_lists_and_choices() -> None:
    assert table().boolean("b", False, "doc").parse("TRUE") is True
    with pytest.raises(ConfigError, match="Expected value to be either true or false"):
        table().boolean("b", False, "doc").parse("yes")
    policy = TOPIC["cleanup.policy"]
    assert policy.parse("compact, delete") == ("compact", "delete")
    assert policy.parse("") == ()
    with pytest.raises(ConfigError, match="'keep' must be a comma-separated list of: delete, compact"):
        policy.parse("compact,keep")


def test_a_secret_is_never_shown() -> None:
    option = table().password("p", "doc", check=lambda value: "must be longer")
    assert option.format("hunter2") is None
    with pytest.raises(ConfigError) as refused:
        option.parse("hunter2")
    assert "hunter2" not in str(refused.value)


def test_listener_overrides_have_a_plain_name() -> None:
    assert listener_base_name("listener.name.external.ssl.keystore.location") == "ssl.keystore.location"
    assert listener_base_name("listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config") == "sasl.jaas.config"
    assert listener_base_name("log.dirs") is None


def test_kinds_are_numbered_as_in_the_protocol() -> None:
    assert [kind.value for kind in OptionType] == list(range(1, 10))
    assert BROKER["log.segment.bytes"].mark is Mark.WORKS


# Names and defaults that users meet, so that nobody changes one by accident.
@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("log.segment.bytes", 1073741824),
        ("log.retention.hours", 168),
        ("log.retention.check.interval.ms", 300000),
        ("message.max.bytes", 1048588),
        ("socket.request.max.bytes", 104857600),
        ("fetch.max.bytes", 57671680),
        ("num.partitions", 1),
        ("offsets.topic.num.partitions", 50),
        ("offsets.retention.minutes", 10080),
        ("group.min.session.timeout.ms", 6000),
        ("group.max.session.timeout.ms", 1800000),
        ("group.consumer.assignors", ("uniform", "range")),
        ("transaction.max.timeout.ms", 900000),
        ("connections.max.idle.ms", 600000),
        ("log.cleaner.min.cleanable.ratio", 0.5),
        ("sasl.enabled.mechanisms", ("GSSAPI",)),
        ("quota.window.num", 11),
    ],
)
def test_defaults_are_those_of_kafka(name: str, default: object) -> None:
    assert BROKER[name].default == default


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.00001, "1.0E-5"), (0.001, "0.001"), (0.000123, "1.23E-4"), (0.5, "0.5"), (0.0, "0.0"), (10.0, "10.0"),
        (1048576.0, "1048576.0"), (10485760.0, "1.048576E7"), (1e7, "1.0E7"), (-0.00001, "-1.0E-5"), (1e21, "1.0E21"),
    ],
)  # fmt: skip
def test_doubles_are_written_as_java_writes_them(value: float, text: str) -> None:
    """Expected texts: Double.toString of JDK 17."""
    assert format_value(value) == text
