"""Every change as a record of a topic of its cluster: who, when, what, with which fields, and how it ended."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Mapping
from typing import Any, Final

from barnabas.admin import NewTopic
from barnabas.admin.values import TopicPartition
from barnabas.client.errors import ClientError
from barnabas.console.asking import Ask, Done
from barnabas.console.producing import produce
from barnabas.wire.errors import ErrorCode

log = logging.getLogger("barnabas.console.audit")

SECRET: Final = re.compile(r"password|secret|token|credential|jaas|private\.key|passphrase", re.IGNORECASE)
LINE: Final = re.compile(rf"(?im)^([^=\n]*(?:{SECRET.pattern})[^=\n]*=).*$")
"""An option in a field of several lines."""
LOGIN: Final = re.compile(r"(://[^/@\s:]*:)[^/@\s]+@")
"""A password in an address."""
BYTES_MAX: Final = 2_000
"""Longer fields are cut: a record that was produced is in its topic."""


class Audit:
    """Writes to the log always, and to a topic if there is one."""

    def __init__(self, topic: str | None) -> None:
        self.topic = topic

    async def note(self, ask: Ask, what: str, done: Done | None, failure: str | None) -> None:
        """One change, or an attempt. A topic that cannot be written is reported in the log, and nothing else."""
        entry = {
            "time_ms": int(time.time() * 1000),
            "user": ask.user,
            "cluster": ask.cluster.name,
            "action": what.format_map(_Quoted(ask.path)),
            "fields": {name: shortened(name, value) for name, value in ask.fields.items()},
            "result": str(done.said) if done is not None else None,
            **({} if done is None else {"said": done.said.text, "values": _plain(done.said.values)}),
            "commands": [] if done is None else list(done.commands),
            "changed": {} if done is None else dict(done.data),
            "failure": failure,
        }
        ask.cluster.changes.append(entry)
        log.info("change", extra={"change": json.dumps(entry, ensure_ascii=True, default=str)})
        if self.topic is None:
            return
        try:
            await self._write(
                ask, json.dumps(entry, ensure_ascii=False, default=str).encode("utf-8", "replace")
            )
        except ClientError as error:
            log.error(
                "a change is missing in the audit topic", extra={"topic": self.topic, "reason": str(error)}
            )

    async def _write(self, ask: Ask, value: bytes) -> None:
        assert self.topic is not None
        key = (ask.user or "").encode()
        place = TopicPartition(self.topic, 0)
        try:
            await produce(ask.admin, place, key, value)
        except ClientError as error:
            if getattr(error, "code", 0) != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            creation = await ask.admin.topics.create(
                [NewTopic(self.topic, 1, configs={"retention.ms": "-1"})]
            )
            creation.except_for(ErrorCode.TOPIC_ALREADY_EXISTS).require()
            await produce(ask.admin, place, key, value)


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """What fills the gaps of a sentence, as JSON knows it."""
    return {
        name: value if isinstance(value, (int, float)) else str(value)[:BYTES_MAX]
        for name, value in values.items()
    }


class _Quoted(dict[str, str]):
    def __init__(self, path: Mapping[str, str]) -> None:
        super().__init__({name: repr(value) for name, value in path.items()})


def shortened(name: str, value: Any) -> Any:
    if SECRET.search(name):
        return "(hidden)"
    if isinstance(value, Mapping):
        value = {one: shortened(str(one), member) for one, member in value.items()}
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = LINE.sub(r"\1(hidden)", text) if "\n" in text or "=" in text else text
    text = LOGIN.sub(r"\1(hidden)@", text)
    return text if len(text) <= BYTES_MAX else text[:BYTES_MAX] + "…"
