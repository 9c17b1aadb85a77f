"""Checks that produced records name schemas of their topic's subjects, for topics that demand it.

Compiled code walks over the records, in a thread when there are many; schema ids are looked up in the registry in threads,
and the results are cached. Only requests with ids that are not yet known wait for the registry. While it does not answer,
they fail after a bounded time with a retriable error; known ids are still accepted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote
from uuid import UUID

from barnabas.broker.partitions.batch_checks import RecordsRefused
from barnabas.config import broker_schemas
from barnabas.http_client import Address
from barnabas.records.batch import CODEC_MASK, CorruptBatch, check_batch, records_block
from barnabas.records.walk import NAMED_MAX, records_naming, schemas_named
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.api.conversion import Conversions
    from barnabas.broker.net.connection import Connection
    from barnabas.broker.partitions.partition import Partition
    from barnabas.config.loader import BrokerConfig
    from barnabas.runtime.clock import Clock
    from barnabas.storage.config import LogConfig

log = logging.getLogger("barnabas.schemas")

ANSWER_S: Final = 5.0
"""How long one registry may take for one answer."""
WAIT_S: Final = 10.0
"""How long a produce request waits for all of its look-ups."""
PAUSE_MS: Final = 1_000
"""After a registry failed to answer, nothing is looked up for this long."""
FRESH_MS: Final = 300_000
"""Known ids are looked up again after this time; the old result is used until the new one arrives."""
KEPT_MAX: Final = 10_000
ASKING_MAX: Final = 1_000
THREADS: Final = 4
SCHEMAS_MAX: Final = 1_000
BAD_MAX: Final = 20
"""At most this many wrong schemas of one batch are searched for in its records."""
DEFAULT_CONTEXT: Final = "."

Reference = int | bytes
"""How a record names its schema: by an id, or by a GUID of 16 bytes."""


class Known(NamedTuple):
    """What the registry knows of a reference. names: the names of the schema's records."""

    subjects: frozenset[str]
    names: frozenset[str]
    until_ms: float


NOT_THERE: Final = Known(frozenset(), frozenset(), 0.0)


@dataclass(frozen=True, slots=True)
class Rule:
    """What a topic demands of its keys or of its values."""

    part: str
    topic: str
    strategy: str

    def subjects(self, known: Known) -> frozenset[str]:
        """The subjects, one of which must have the schema."""
        if self.strategy == "TopicNameStrategy":
            return frozenset({f"{self.topic}-{self.part}"})
        if self.strategy == "RecordNameStrategy":
            return known.names
        return frozenset(f"{self.topic}-{name}" for name in known.names)

    def wanted(self) -> str:
        """The subject in words."""
        if self.strategy == "TopicNameStrategy":
            return f"the subject {self.topic}-{self.part}"
        after = "" if self.strategy == "RecordNameStrategy" else f"{self.topic}- and "
        return f"the subject that {self.strategy} names ({after}the name of the schema's record)"


def rules_of(topic: str, config: LogConfig) -> Iterator[Rule]:
    """What a topic's options demand."""
    if config.confluent_key_schema_validation:
        yield Rule("key", topic, config.confluent_key_subject_name_strategy.rpartition(".")[2])
    if config.confluent_value_schema_validation:
        yield Rule("value", topic, config.confluent_value_subject_name_strategy.rpartition(".")[2])


class SchemaChecks:
    """See the module. One per broker; all calls come from its loop."""

    def __init__(self, config: BrokerConfig, clock: Clock, conversions: Conversions) -> None:
        self._clock = clock
        self._conversions = conversions
        user = config.get(broker_schemas.SCHEMA_REGISTRY_USER)
        self.registries = tuple(
            Address(_with_user(url, user)) for url in config.get(broker_schemas.SCHEMA_REGISTRY_URL)
        )
        """Empty if there is no registry."""
        self._known: OrderedDict[Reference, Known] = OrderedDict()
        self._asking: dict[Reference, asyncio.Future[Known]] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._failure = ""
        self._failed_until_ms = 0.0

    def use(self, registry: Address) -> None:
        """Use this registry, unless the configuration names one."""
        self.registries = self.registries or (registry,)

    async def check(self, partition: Partition, records: memoryview, whose: Connection) -> None:
        """Raises RecordsRefused when a record names no schema of its subject, and ApiError when that cannot be determined.

        records: one batch whose header has been checked; its buffer must not be a borrowed one.
        """
        try:
            async with asyncio.timeout(WAIT_S):
                await self._check(tuple(rules_of(partition.topic, partition.config)), records, whose)
        except TimeoutError:
            raise self._unavailable("it does not answer in time") from None
        except CorruptBatch as error:
            raise ApiError(
                ErrorCode.INVALID_RECORD, f"the records of the batch cannot be read: {error}"
            ) from error

    async def _check(self, rules: tuple[Rule, ...], records: memoryview, whose: Connection) -> None:
        header = check_batch(records)
        run = partial(
            self._conversions.run, len(records), whose=whose, packed=bool(header.attributes & CODEC_MASK)
        )

        # Decompressed again when a record is refused: the decompressed batch is not held while the registry is asked.
        def names() -> list[set[int | bytes | None]]:
            block = records_block(records, 0, header)
            return [schemas_named(block, header.record_count, rule.part == "key") for rule in rules]

        for rule, references in zip(rules, await run(names), strict=True):
            bad = await self._strangers(rule, references)
            if not bad:
                continue

            def numbers(rule: Rule = rule, bad: set[int | bytes | None] = bad) -> list[int]:
                block = records_block(records, 0, header)
                return records_naming(block, header.record_count, rule.part == "key", bad)[:NAMED_MAX]

            raise _refusal(rule, bad, await run(numbers))

    async def _strangers(self, rule: Rule, references: set[int | bytes | None]) -> set[int | bytes | None]:
        """The references that are not schemas of the rule's subject. Raises ApiError."""
        if len(references) > SCHEMAS_MAX:
            raise ApiError(
                ErrorCode.INVALID_RECORD,
                f"the batch names {len(references)} schemas; {SCHEMAS_MAX} are looked up",
            )
        bad: set[int | bytes | None] = set()
        # One after the other: a batch with a thousand unknown ids does not delay all others.
        for reference in references:
            if reference is None or not await self._belongs(rule, reference):
                bad.add(reference)
                if len(bad) == BAD_MAX:
                    break
        return bad

    async def _belongs(self, rule: Rule, reference: Reference) -> bool:
        known = self._known.get(reference)
        if known is not None:
            self._known.move_to_end(reference)
            if known.subjects & rule.subjects(known):
                if known.until_ms <= self._clock.monotonic_ms():
                    with suppress(ApiError):
                        self._ask(reference)  # refresh for the next time
                return True
        # The schema may have been added to the subject meanwhile.
        known = await asyncio.shield(self._ask(reference))
        return bool(known.subjects & rule.subjects(known))

    def _ask(self, reference: Reference) -> asyncio.Future[Known]:
        """Look up a reference now; concurrent callers share the answer. Raises ApiError."""
        asking = self._asking.get(reference)
        if asking is not None:
            return asking
        if not self.registries:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                "the topic asks for its schemas to be checked, and confluent.schema.registry.url of the broker is not set",
            )
        if self._clock.monotonic_ms() < self._failed_until_ms:
            raise self._unavailable(self._failure)
        if len(self._asking) >= ASKING_MAX:
            raise self._unavailable(f"{ASKING_MAX} schemas are being looked up already")
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, "schema look-ups")
        asking = asyncio.ensure_future(self._answer(reference, self._threads))
        self._asking[reference] = asking
        asking.add_done_callback(partial(self._answered, reference))
        return asking

    async def _answer(self, reference: Reference, threads: ThreadPoolExecutor) -> Known:
        from barnabas.client.registry import RegistryError

        loop = asyncio.get_running_loop()
        try:
            known = await loop.run_in_executor(threads, _look_up, self.registries, reference)
        except RegistryError as error:
            self._failure = str(error)
            self._failed_until_ms = self._clock.monotonic_ms() + PAUSE_MS
            log.warning(
                "a schema was not looked up", extra={"schema": shown(reference), "reason": str(error)}
            )
            raise self._unavailable(self._failure) from None
        return known._replace(until_ms=self._clock.monotonic_ms() + FRESH_MS)

    def _answered(self, reference: Reference, asking: asyncio.Future[Known]) -> None:
        self._asking.pop(reference, None)
        if asking.cancelled() or asking.exception() is not None:
            return  # the callers that wait receive the error
        known = asking.result()
        if not known.subjects:  # not cached: it may be registered a moment later
            self._known.pop(reference, None)
            return
        self._known[reference] = known
        self._known.move_to_end(reference)
        while len(self._known) > KEPT_MAX:
            self._known.popitem(last=False)

    @staticmethod
    def _unavailable(reason: str) -> ApiError:
        # Producers try again after this error.
        return ApiError(
            ErrorCode.REQUEST_TIMED_OUT, f"the schemas of the records cannot be looked up: {reason}"
        )

    def close(self) -> None:
        """End the threads."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _refusal(rule: Rule, bad: set[int | bytes | None], numbers: list[int]) -> RecordsRefused:
    references = sorted(shown(reference) for reference in bad if reference is not None)
    reasons = []
    if None in bad:
        reasons.append(
            f"the {rule.part} names no schema (it begins with neither 0 and an id nor 1 and a GUID, and no header does)"
        )
    if references:
        listed = ", ".join(references[:5]) + (" and others" if len(references) > 5 else "")
        reasons.append(f"the {rule.part}'s schema {listed} is not one of {rule.wanted()}")
    return RecordsRefused(ErrorCode.INVALID_RECORD, f"{rule.topic}: {'; or '.join(reasons)}", numbers)


def shown(reference: Reference) -> str:
    """A reference as shown in error messages."""
    return str(UUID(bytes=reference)) if isinstance(reference, bytes) else str(reference)


def _with_user(url: str, user: str | None) -> str:
    if not user:
        return url
    name, _, password = user.partition(":")
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{quote(name, safe='')}:{quote(password, safe='')}@{rest}"


# --- in a thread ------------------------------------------------------------------------------------------


def _look_up(registries: tuple[Address, ...], reference: Reference) -> Known:
    """Ask one registry after the other until one answers. Raises RegistryError."""
    from barnabas.client.registry import RegistryError

    failure: RegistryError | None = None
    for registry in registries:
        try:
            return _look_up_at(registry, reference)
        except RegistryError as error:
            failure = error
    assert failure is not None, "there is a registry"
    raise failure


def _look_up_at(registry: Address, reference: Reference) -> Known:
    from barnabas.schemas.formats.names import record_names

    if isinstance(reference, bytes):
        owners = _ask_for(registry, f"/schemas/guids/{UUID(bytes=reference)}/ids") or ()
        # Subjects of other contexts may have the same names as those of the default context.
        ids = [int(row["id"]) for row in owners if row["context"] == DEFAULT_CONTEXT]
        if not ids:
            return NOT_THERE
        reference = ids[0]
    places = _ask_for(registry, f"/schemas/ids/{reference}/versions")
    if not places:
        return NOT_THERE
    schema = _ask_for(registry, f"/schemas/ids/{reference}") or {}
    names = record_names(str(schema.get("schemaType") or "AVRO"), str(schema.get("schema") or ""))
    return Known(frozenset(str(row["subject"]) for row in places), names, 0.0)


def _ask_for(registry: Address, path: str) -> Any:
    """The registry's answer as parsed JSON; None when it has no such item. Raises RegistryError."""
    from barnabas.client.registry import NoRegistry, RegistryError, request

    try:
        answer = request(registry.url, "GET", path, timeout_s=ANSWER_S, context=registry.context)
    except NoRegistry:
        raise
    except RegistryError as error:
        if error.code // 100 == 404 or error.code == 404:
            return None
        raise
    if not isinstance(answer, (list, dict)):
        raise NoRegistry(f"the answer to {path} is not that of a schema registry")
    return answer
