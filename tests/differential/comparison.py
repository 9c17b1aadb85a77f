"""Generates requests, asks both brokers, keeps what differs, and reduces each to the least request that shows it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

from barnabas.broker.api.table import APIS, Api
from barnabas.wire.primitives import WireError
from barnabas.wire.schema import UNSET, Message, Struct
from tests.differential.answers import Difference, differences, plain
from tests.differential.peers import Peer, answer_of
from tests.differential.vocabulary import COMPACT, PLAIN, Source

ACCEPTED: Final = Path(__file__).with_name("accepted.json")
SYMBOLS: Final = {PLAIN: UUID(int=1), COMPACT: UUID(int=2)}
CHANGING: Final = frozenset({
    "Produce", "DeleteTopics", "CreatePartitions", "DeleteRecords", "AlterConfigs", "IncrementalAlterConfigs",
    "OffsetCommit", "OffsetDelete", "AlterPartitionReassignments", "ElectLeaders", "AlterReplicaLogDirs",
})  # fmt: skip
LAST: Final = ("DeleteGroups", "AlterClientQuotas", "CreateAcls", "DeleteAcls", "DeleteShareGroupOffsets")
LEFT_OUT: Final = frozenset({"PushTelemetry", "GetTelemetrySubscriptions"})
TRIES_MAX: Final = 60


@dataclass
class Finding:
    """One difference with the least request that shows it, and how often it was met."""

    api: str
    difference: Difference
    version: int
    request: str
    count: int = 1
    versions: set[int] = field(default_factory=set)


def comparable(api: Api, request: Message, version: int, kafka: Peer, ours: Peer) -> list[Difference]:
    """The differences between the answers to one request."""
    answers = [
        answer_of(peer, translated(request, {SYMBOLS[name]: peer.ids[name] for name in SYMBOLS}), version)
        for peer in (kafka, ours)
    ]
    return list(dict.fromkeys(differences(plain(answers[0]), plain(answers[1]))))


def translated(value: Any, ids: dict[UUID, UUID]) -> Any:
    """The same message with a broker's own topic ids in place of the symbols."""
    return _mapped(value, lambda leaf: ids.get(leaf, leaf) if isinstance(leaf, UUID) else leaf)


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, Struct):
        return type(value)(**{name: _mapped(getattr(value, name), change) for name in value.FIELDS})
    if isinstance(value, list):
        return [_mapped(item, change) for item in value]
    return change(value)


def cases(seed: int, api: Api, version: int, count: int) -> Iterator[tuple[int, Message]]:
    """Requests of one API in one version; always the same for a seed."""
    for number in range(count):
        rng = random.Random(f"{seed}/{api.name}/{version}/{number}")
        own = f"own-{seed}-{api.key}-{version}-{number}" if api.name == "CreateTopics" else None
        yield number, Source(rng, SYMBOLS, own).make(api.request, version)


def smaller(message: Any) -> Iterator[Any]:
    """Messages with one thing less: an element of a list left out, a field at its default."""
    for name, declared in message.FIELDS.items():
        value = getattr(message, name)
        if isinstance(value, list):
            for index, item in enumerate(value):
                yield _with(message, name, value[:index] + value[index + 1 :])
                if isinstance(item, Struct):
                    for less in smaller(item):
                        yield _with(message, name, [*value[:index], less, *value[index + 1 :]])
        elif isinstance(value, Struct):
            for less in smaller(value):
                yield _with(message, name, less)
        elif declared.default is not UNSET and value != declared.default and name != "timeout_ms":
            yield _with(message, name, declared.default)


def _with(message: Any, name: str, value: Any) -> Any:
    return type(message)(**{**{key: getattr(message, key) for key in message.FIELDS}, name: value})


class Comparison:
    """See the module. Changing requests run against topics that both brokers get anew."""

    def __init__(self, kafka: Peer, ours: Peer) -> None:
        self._kafka = kafka
        self._ours = ours
        self._run = uuid4().hex[:6]
        self._fresh = 0
        self.findings: dict[tuple[str, Difference], Finding] = {}
        self.asked = 0

    def run(self, seed: int, count: int, only: str | None = None) -> None:
        """Ask `count` requests of each API in each version that both serve."""
        theirs = self._kafka.versions()
        rows = [api for api in APIS if api.key in theirs and api.name not in LEFT_OUT]
        rows.sort(key=lambda api: (api.name in LAST, api.name in CHANGING, api.key))
        for api in rows:
            if only is None or api.name == only:
                for version in api.versions:
                    if version in theirs[api.key]:
                        for _, request in cases(seed, api, version, count):
                            self._compare(api, version, request)

    def _compare(self, api: Api, version: int, request: Message) -> None:
        try:
            found_differences = self._differences(api, version, request)
        except WireError:
            return  # the declaration does not allow this value in this version
        self.asked += 1
        for difference in found_differences:
            known = self.findings.get((api.name, difference))
            if known is None:
                least = self._least(api, version, request, difference)
                known = Finding(api.name, difference, version, json.dumps(shown(least)), count=0)
                self.findings[api.name, difference] = known
            known.count += 1
            known.versions.add(version)

    def _differences(self, api: Api, version: int, request: Message) -> list[Difference]:
        if api.name in CHANGING:
            self._fresh += 1
            name = f"case-{self._run}-{self._fresh}"
            for peer in (self._kafka, self._ours):
                peer.create(name, 2)
            kept = {peer: peer.ids[PLAIN] for peer in (self._kafka, self._ours)}
            request = _mapped(request, lambda leaf: name if leaf == PLAIN else leaf)
            try:
                for peer in kept:
                    peer.ids[PLAIN] = peer.ids[name]
                return comparable(api, request, version, self._kafka, self._ours)
            finally:
                for peer, plain_id in kept.items():
                    peer.ids[PLAIN] = plain_id
        return comparable(api, request, version, self._kafka, self._ours)

    def _least(self, api: Api, version: int, request: Message, difference: Difference) -> Message:
        tries, least = 0, request
        progress = True
        while progress and tries < TRIES_MAX:
            progress = False
            for less in smaller(least):
                tries += 1
                try:
                    shows = difference in self._differences(api, version, less)
                except WireError:
                    continue
                if shows:
                    least, progress = less, True
                    break
                if tries >= TRIES_MAX:
                    break
        return least


def shown(value: Any) -> Any:
    """A message as JSON data, without the fields that are at their defaults."""
    if isinstance(value, Struct):
        fields = {name: (getattr(value, name), declared.default) for name, declared in value.FIELDS.items()}
        return {name: shown(kept) for name, (kept, default) in fields.items() if kept != default}
    if isinstance(value, list):
        return [shown(item) for item in value]
    if isinstance(value, bytes | memoryview):
        return f"{len(value)} bytes"
    return str(value) if isinstance(value, UUID) else value


def accepted() -> list[dict[str, str]]:
    """The differences that are meant to be: api, path, kafka, ours (patterns with * and ?), why."""
    rows: list[dict[str, str]] = json.loads(ACCEPTED.read_text())
    return rows


def is_accepted(finding: Finding, rows: list[dict[str, str]]) -> bool:
    """Whether a row of accepted.json is about this finding."""
    facts = {"api": finding.api, **finding.difference._asdict()}
    return any(all(fnmatchcase(fact, row[key]) for key, fact in facts.items()) for row in rows)
