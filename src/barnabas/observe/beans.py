"""Metrics as JMX shows them: MBeans with attributes, under Kafka's names, and which of them a pattern means."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

from barnabas.observe.metric import Distribution, Sample

Value = float | int | str
Beans = dict[str, dict[str, Value]]
PERCENTILE_ATTRIBUTES: Final = (
    "50thPercentile", "75thPercentile", "95thPercentile", "98thPercentile", "99thPercentile", "999thPercentile",
)  # fmt: skip
MINUTES: Final = {"OneMinuteRate": 60.0, "FiveMinuteRate": 300.0, "FifteenMinuteRate": 900.0}
Key = tuple[str, tuple[str, ...]]


class Rates:
    """Moving averages of what counters grow by in a second, which move whenever they are looked at."""

    def __init__(self, started_s: float) -> None:
        """started_s: when the counters began, in the clock of `look`."""
        self._started_s = started_s
        self._seen: dict[Key, tuple[float, float, list[float]]] = {}

    def look(self, key: Key, count: float, now_s: float) -> dict[str, Value]:
        """The rates of a counter, which has come to `count`. At first they are its mean."""
        mean = count / max(now_s - self._started_s, 1e-3)
        seen_s, before, rates = self._seen.get(key, (now_s, count, [mean] * len(MINUTES)))
        passed_s = now_s - seen_s
        if passed_s > 0:
            rate = max(count - before, 0) / passed_s
            rates = [
                known + (rate - known) * -math.expm1(-passed_s / window_s)
                for known, window_s in zip(rates, MINUTES.values(), strict=True)
            ]
        self._seen[key] = (now_s, count, rates)
        return {"MeanRate": mean, **dict(zip(MINUTES, rates, strict=True))}


def beans(samples: Iterable[Sample], rates: Rates, now_s: float, patterns: Iterable[str] = ()) -> Beans:
    """The samples as MBeans with their attributes. patterns: only what one of them means; without any, all."""
    wanted = [matcher(pattern) for pattern in patterns]
    by_name: Beans = {}
    for sample in samples:
        metric = sample.metric
        name = metric.mbean_of(sample.labels)
        if wanted and not any(is_meant(name) for is_meant in wanted):
            continue
        attributes = by_name.setdefault(name, {})
        if sample.parts is not None:
            attributes.update(_of_distribution(sample.parts))
        elif metric.only_grows and metric.attribute == "Count":
            attributes["Count"] = _plain(sample.value)
            attributes.update(rates.look((metric.name, sample.labels), sample.value, now_s))
            attributes["RateUnit"], attributes["EventType"] = "SECONDS", metric.unit
        else:
            attributes[metric.attribute] = _plain(sample.value)
    return dict(sorted(by_name.items()))


def _of_distribution(parts: Distribution) -> dict[str, Value]:
    mean = parts.sum / parts.number if parts.number else 0.0
    return {
        "Count": _plain(parts.number),
        "Max": parts.high,
        "Mean": mean,
        "Min": parts.low,
        **dict(zip(PERCENTILE_ATTRIBUTES, parts.quantiles, strict=True)),
    }


def _plain(value: float) -> float | int:
    return int(value) if float(value).is_integer() else value


class Matcher:
    """See `matcher`."""

    def __init__(self, pattern: str) -> None:
        self._domain, colon, properties = pattern.partition(":")
        self._part = None if colon else pattern.lower()
        listed = split_properties(properties)
        self._is_open = "*" in listed
        self._properties = {
            key: value for key, equals, value in (text.partition("=") for text in listed) if equals
        }

    def __call__(self, name: str) -> bool:
        """Whether an MBean is meant."""
        if self._part is not None:
            return self._part in name.lower() or fnmatchcase(name.lower(), self._part)
        domain, _, rest = name.partition(":")
        if not fnmatchcase(domain, self._domain or "*"):
            return False
        properties: Mapping[str, str] = {
            key: value for key, _, value in (text.partition("=") for text in split_properties(rest))
        }
        if not self._is_open and properties.keys() != self._properties.keys():
            return False
        return all(
            key in properties and fnmatchcase(properties[key], value)
            for key, value in self._properties.items()
        )


def matcher(pattern: str) -> Matcher:
    """What tells whether a pattern means an MBean: a pattern of JMX (`kafka.server:type=BrokerTopicMetrics,*`), in which the
    order of the properties does not matter, or a part of the name, in any case."""
    return Matcher(pattern)


def split_properties(text: str) -> list[str]:
    """The properties of an MBean's name, at the commas that are not within quotation marks."""
    return re.findall(r'(?:[^,"]|"(?:[^"\\]|\\.)*")+', text)
