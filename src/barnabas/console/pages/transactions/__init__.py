"""Producers that partitions remember, and transactions: who writes, what is open since when, and what hangs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas.admin import ProducerState, Transaction
from barnabas.admin.values import TopicPartition
from barnabas.client.errors import ClientError
from barnabas.console.asking import Ask, Done
from barnabas.console.listing import cut
from barnabas.console.pages.topic import topic_of
from barnabas.console.roles import Role
from barnabas.console.said import Refused, said
from barnabas.console.site import Action, Data, Page

OPEN: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
DESCRIBED_MAX: Final = 500
PRODUCERS_MAX: Final = 1_000


async def read(ask: Ask) -> Data:
    """The transactional ids with their states, producers and open transactions"""
    listed = await ask.admin.transactions.list()
    if not listed.done:
        for error in listed.failed.values():
            raise error
    names = sorted(
        {
            row.transactional_id
            for rows in listed.done.values()
            for row in rows
            if ask.sees(row.transactional_id)
        }
    )
    q = ask.text("q").lower()
    names = [name for name in names if q in name.lower()][:DESCRIBED_MAX]
    described = await ask.admin.transactions.describe(names) if names else None
    transactions: Sequence[Transaction] = [] if described is None else list(described.done.values())
    only_open = ask.flag("open")
    page, list_ = cut(
        ask, [row for row in transactions if not only_open or row.state in OPEN], lambda row: row.transactional_id,
        {
            "name": lambda row: row.transactional_id,
            "state": lambda row: row.state,
            "since": lambda row: row.start_ms or 1 << 62,
            "partitions": lambda row: len(row.partitions),
        },
        "name",
    )  # fmt: skip
    now_ms = time.time() * 1000
    return {
        "transactions": [_row(row, now_ms) for row in page],
        "list": list_,
        "only_open": only_open,
        "failed": [str(error) for error in listed.failed.values()],
        "commands": [ask.command("txn", "list"), ask.command("txn", "find-hanging")],
    }


def _row(transaction: Transaction, now_ms: float) -> dict[str, Any]:
    return {
        "name": transaction.transactional_id,
        "state": transaction.state,
        "is_open": transaction.state in OPEN,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "coordinator": transaction.coordinator.id,
        "timeout_ms": transaction.timeout_ms,
        "since_ms": transaction.start_ms,
        "open_for_s": None
        if transaction.start_ms is None
        else max(round((now_ms - transaction.start_ms) / 1000), 0),
        "partitions": [str(partition) for partition in transaction.partitions],
    }


async def fence(ask: Ask) -> Done:
    """Abort the open transaction of a transactional id, and refuse its producer from then on: name, confirm (again)"""
    name = ask.required("name")
    if ask.role_for(name) < Role.ADMIN:
        raise Refused(
            403,
            said(
                "{user} may not do this: it needs the role {role}", user=ask.user or "anybody", role="admin"
            ),
        )
    if ask.text("confirm") != name:
        raise Refused(400, said("Not done: type {name} to confirm", name=name))
    (await ask.admin.transactions.fence([name])).require()
    return Done(said("The producer of {name} is fenced", name=name), "/transactions", {"name": name},
                (ask.command("txn", "abort", name),))  # fmt: skip


async def read_producers(ask: Ask) -> Data:
    """The producers that a topic's partitions remember, with their sequences and open transactions"""
    topic = await topic_of(ask)
    keys = [TopicPartition(topic.name, p.number) for p in topic.partitions if p.leader >= 0]
    producers = await ask.admin.transactions.producers(keys)
    if keys and not producers.done:
        for error in producers.failed.values():
            raise error
    states = [(key.partition, state) for key, rows in sorted(producers.done.items()) for state in rows]
    names = await _names(ask, {int(state.producer_id) for _, state in states[:PRODUCERS_MAX]})
    return {
        "topic": topic.name,
        "producers": [_producer(number, state, names) for number, state in states[:PRODUCERS_MAX]],
        "left_out": max(len(states) - PRODUCERS_MAX, 0),
        "failed": [f"{key}: {error}" for key, error in producers.failed.items()],
        "tab": "producers",
        "commands": [ask.command("txn", "find-hanging", "--topic", topic.name)],
    }


def _producer(number: int, state: ProducerState, names: Mapping[int, str]) -> dict[str, Any]:
    return {
        "partition": number,
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "last_sequence": state.last_sequence,
        "last_ms": state.last_timestamp_ms,
        "transaction_start": state.transaction_start,
        "transactional_id": names.get(int(state.producer_id)),
    }


async def _names(ask: Ask, producer_ids: set[int]) -> Mapping[int, str]:
    """The transactional ids of producers, as far as the user may see them."""
    if not producer_ids:
        return {}
    try:
        listed = await ask.admin.transactions.list(producer_ids=producer_ids)
    except ClientError:
        return {}
    return {
        int(row.producer_id): row.transactional_id
        for rows in listed.done.values()
        for row in rows
        if ask.sees(row.transactional_id)
    }


PAGES: Final = (
    Page("transactions", "/transactions", "transactions", read, actions=(Action("/transactions/fence", fence),)),
    Page(
        "transactions", "/topics/{topic}/producers", "topics", read_producers, named="topic", template="producers.html"
    ),
)  # fmt: skip
