"""Transfers money between accounts: the debit and the credit become visible together, or neither does.

python transfer.py [HOST:PORT]
"""

from __future__ import annotations

import sys

from confluent_kafka import Producer

TRANSFERS = [("alice", "bob", 100), ("bob", "carol", 250), ("alice", "carol", 40)]
OPENING = {"alice": 200, "bob": 0, "carol": 0}


def main(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "teller-1"})
    producer.init_transactions(30)
    balances = dict(OPENING)
    for payer, payee, amount in TRANSFERS:
        producer.begin_transaction()
        producer.produce("debits", str(-amount), key=payer)
        producer.produce("credits", str(amount), key=payee)
        if balances[payer] < amount:
            producer.abort_transaction(30)
            print(f"{payer} -> {payee}: {amount} refused, {payer} has {balances[payer]}")
            continue
        producer.commit_transaction(30)
        balances[payer] -= amount
        balances[payee] += amount
        print(f"{payer} -> {payee}: {amount}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092")
