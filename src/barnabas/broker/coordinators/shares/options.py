"""The options of one share group for fetching: its own, and the broker's defaults for the rest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from barnabas.config import broker_share, group_options
from barnabas.config.option import Option
from barnabas.cores.group.share.partition import ShareLimits

if TYPE_CHECKING:
    from barnabas.config.loader import BrokerConfig

_UNITS_S: Final = {"D": 86_400, "H": 3_600, "M": 60, "S": 1}


@dataclass(frozen=True, slots=True)
class ShareOptions:
    """`reset`: earliest, latest or by_duration:P...; `dead_letter_topic`: empty for none."""

    limits: ShareLimits
    reset: str
    read_committed: bool
    dead_letter_topic: str
    copy_dead_letters: bool


def share_options(config: BrokerConfig, texts: Mapping[str, str]) -> ShareOptions:
    """The options of a group. texts: those that the group sets itself, checked when they were set."""

    def value_of(own: Option[Any], default: Option[Any] | None = None) -> Any:
        if own.name in texts:
            return own.parse(texts[own.name])
        return own.default if default is None else config.get(default)

    limits = ShareLimits(
        delivery_count_limit=value_of(
            group_options.SHARE_DELIVERY_COUNT_LIMIT, broker_share.GROUP_SHARE_DELIVERY_COUNT_LIMIT
        ),
        record_lock_duration_ms=value_of(
            group_options.SHARE_RECORD_LOCK_DURATION_MS, broker_share.GROUP_SHARE_RECORD_LOCK_DURATION_MS
        ),
        partition_max_record_locks=value_of(
            group_options.SHARE_PARTITION_MAX_RECORD_LOCKS,
            broker_share.GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS,
        ),
        renew_acknowledge_enable=value_of(group_options.SHARE_RENEW_ACKNOWLEDGE_ENABLE),
    )
    return ShareOptions(
        limits,
        value_of(group_options.SHARE_AUTO_OFFSET_RESET),
        value_of(group_options.SHARE_ISOLATION_LEVEL) == "read_committed",
        value_of(group_options.ERRORS_DEADLETTERQUEUE_TOPIC_NAME),
        value_of(group_options.ERRORS_DEADLETTERQUEUE_COPY_RECORD_ENABLE),
    )


def duration_ms(reset: str) -> int | None:
    """The duration of by_duration:PnDTnHnMnS in ms; None for earliest and latest."""
    kind, _, text = reset.partition(":")
    if kind != "by_duration":
        return None
    parts = re.findall(r"([\d.]+)([DHMS])", text.upper())
    return round(sum(float(count) * _UNITS_S[unit] for count, unit in parts) * 1000)
