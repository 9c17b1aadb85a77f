"""Keeps the accounts' balances in a database, and writes the offsets in the same database transaction. So each record
counts once, however the program ends: the next run begins at the offsets in the database, not at those of the group.

    python balances.py [HOST:PORT] [DATABASE_URL] [--die-after N]

DATABASE_URL is SQLAlchemy's, postgresql+psycopg://user@host/name say; without it, SQLite's balances.db. --die-after ends the
process with SIGKILL in the middle of the N-th record's transaction, to show that this transaction has no effect.
"""

from __future__ import annotations

import argparse
import os
import signal

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from sqlalchemy import BigInteger, Column, Connection, Integer, MetaData, String, Table, create_engine, select

TABLES = MetaData()
BALANCES = Table(
    "balances",
    TABLES,
    Column("account", String(100), primary_key=True),
    Column("balance", BigInteger, nullable=False),
)
OFFSETS = Table(
    "offsets",
    TABLES,
    Column("topic", String(249), primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("next_offset", BigInteger, nullable=False),
)


def book(database: Connection, record: Message) -> None:
    """Adds a record to its account's balance, and notes the offset; the caller commits both or neither."""
    account, amount = record.key().decode(), int(record.value())
    here = BALANCES.c.account == account
    if database.execute(
        BALANCES.update().where(here).values(balance=BALANCES.c.balance + amount)
    ).rowcount == 0:  # fmt: skip
        database.execute(BALANCES.insert().values(account=account, balance=amount))
    place = (OFFSETS.c.topic == record.topic()) & (OFFSETS.c.partition == record.partition())
    done = {"next_offset": record.offset() + 1}
    if database.execute(OFFSETS.update().where(place).values(done)).rowcount == 0:
        database.execute(OFFSETS.insert().values(topic=record.topic(), partition=record.partition(), **done))


def main(bootstrap: str, url: str, die_after: int) -> None:
    engine = create_engine(url)
    TABLES.create_all(engine)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "balances",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )

    def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
        with engine.connect() as database:
            known = {(row.topic, row.partition): row.next_offset for row in database.execute(select(OFFSETS))}
        for partition in partitions:
            partition.offset = known.get((partition.topic, partition.partition), partition.offset)
        consumer.assign(partitions)

    consumer.subscribe(["debits", "credits"], on_assign=assigned)
    booked, ended = 0, set[tuple[str, int]]()
    while not ended or ended != {(p.topic, p.partition) for p in consumer.assignment()}:
        record = consumer.poll(1)
        if record is None:
            continue
        if record.error() is not None:
            if record.error().code() == KafkaError._PARTITION_EOF:
                ended.add((record.topic(), record.partition()))
            continue
        ended.discard((record.topic(), record.partition()))
        with engine.begin() as database:
            book(database, record)
            booked += 1
            if booked == die_after:
                os.kill(os.getpid(), signal.SIGKILL)
    consumer.close()
    print(f"{booked} records booked")
    with engine.connect() as database:
        for row in database.execute(select(BALANCES).order_by(BALANCES.c.account)):
            print(f"{row.account:<6} {row.balance:>5}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap", nargs="?", default="localhost:9092")
    parser.add_argument("url", nargs="?", default="sqlite:///balances.db")
    parser.add_argument("--die-after", type=int, default=0)
    given = parser.parse_args()
    main(given.bootstrap, given.url, given.die_after)
