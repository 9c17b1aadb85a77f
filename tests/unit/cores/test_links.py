"""What a link decides: which topics it takes, where a log goes on when the source has nothing there, which epochs follow."""

from __future__ import annotations

import pytest

from barnabas.cores.links import (
    AGAIN,
    BEGIN,
    CUT,
    Ends,
    LinkedTopic,
    LinkSpec,
    Step,
    clamped,
    decide_out_of_range,
    promoted_epoch,
    start_to_follow,
)
from barnabas.wire.errors import ApiError

SOURCE = {"bootstrap.servers": "east:9092"}


def spec(topics: str = ".*", **more: object) -> LinkSpec:
    return LinkSpec("east", SOURCE, topics, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("own", "source", "step"),
    [
        # A new copy begins where the source begins.
        (Ends(0, 0), Ends(40, 90), Step(BEGIN, 40)),
        (Ends(0, 0), Ends(0, 90), Step(AGAIN)),
        # Retention has overtaken the mirror: 50 to 69 were never copied.
        (Ends(10, 50), Ends(70, 90), Step(BEGIN, 70, missed=20)),
        # The source has lost 80 to 99; 30 to 99, everything that was copied.
        (Ends(10, 100), Ends(20, 80), Step(CUT, 80, dropped=20)),
        (Ends(30, 100), Ends(0, 20), Step(BEGIN, 0, dropped=70)),
        # It has grown again since it answered.
        (Ends(10, 50), Ends(20, 90), Step(AGAIN)),
        (Ends(50, 50), Ends(50, 50), Step(AGAIN)),
    ],
)
def test_a_log_goes_on_where_the_source_has_records(own: Ends, source: Ends, step: Step) -> None:
    assert decide_out_of_range(own, source, source.start) == step


def test_the_log_start_follows_up_to_the_high_watermark_and_never_back() -> None:
    assert start_to_follow(Ends(10, 50), 40, 30) == 30
    assert start_to_follow(Ends(10, 50), 40, 45) == 40
    assert start_to_follow(Ends(10, 50), 40, 5) is None
    assert start_to_follow(Ends(10, 50), 40, -1) is None


def test_offsets_of_groups_stay_within_the_copy() -> None:
    assert [clamped(offset, Ends(10, 50)) for offset in (5, 10, 33, 50, 51)] == [10, 10, 33, 50, 50]


def test_a_promotion_leaves_the_epochs_of_the_source_far_behind() -> None:
    assert promoted_epoch(3, 7) == 1007
    assert promoted_epoch(1007, -1) == 2007


def test_topics_and_groups_are_chosen_by_whole_names() -> None:
    link = spec("orders|pay.*, audit-[0-9]{1,2}", topics_exclude="pay-test", groups="bill.*")
    taken = ["orders", "payments", "audit-1", "audit-12", "audit-123", "orders2", "pay-test", "__offsets"]
    assert [name for name in taken if link.takes_topic(name)] == ["orders", "payments", "audit-1", "audit-12"]
    assert link.takes_group("billing")
    assert not link.takes_group("a-billing")
    assert not spec().takes_topic("__consumer_offsets")
    assert not spec().takes_group("any")


def test_a_link_is_stored_and_read_back() -> None:
    link = spec(
        "a,b",
        groups=".*",
        start_ms=17,
        replicas=3,
        acls=True,
        takes_over=True,
        promoted=frozenset({"a", "b"}),
    )
    assert LinkSpec.of("east", link.texts()) == link


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ({"source.bootstrap.servers": ""}, "names no brokers"),
        ({"topics": " "}, "selects no topics"),
        ({"topics": "a("}, "is not a regular expression"),
        ({"start.ms": "noon"}, "noon"),
        ({"state": "gone"}, "there are mirroring, paused, promoted"),
        ({"interval.ms": "1"}, "at least 100"),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason(texts: dict[str, str], reason: str) -> None:
    with pytest.raises(ApiError, match=reason):
        LinkSpec.of("east", spec().texts() | texts)


def test_names_of_links_have_plain_letters() -> None:
    with pytest.raises(ApiError, match="letters"):
        LinkSpec.of("a/b", spec().texts())


def test_a_topics_option_names_its_link_and_its_id_there() -> None:
    assert LinkedTopic.of("") is None
    assert LinkedTopic.of("east") == LinkedTopic("east")
    assert LinkedTopic.of(str(LinkedTopic("east", "AAAA"))) == LinkedTopic("east", "AAAA")
