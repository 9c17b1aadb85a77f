"""kafka-python of one release in several `api_version`s: probe.py BOOTSTRAP write|read|group TOPIC ARGUMENTS.

write TOPIC COUNT CODECS VERSIONS: COUNT records with each codec in each version, then what was written.
read TOPIC COUNT VERSIONS: what each version reads, COUNT records.
group TOPIC COUNT VERSIONS: each version reads in a group, commits, and a new member goes on from there.
VERSIONS: `auto` or numbers such as 0.8.2, with commas between. Prints one line of JSON.
"""

import json
import sys
import time
import traceback

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

TIMEOUT_S = 30


def api_version(text):
    return None if text == "auto" else tuple(int(number) for number in text.split("."))


def write(bootstrap, topic, count, codecs, versions):
    written = []
    used = {}
    for version in versions.split(","):
        for codec in codecs.split(","):
            producer = KafkaProducer(
                bootstrap_servers=bootstrap,
                api_version=api_version(version),
                compression_type=None if codec == "none" else codec,
                linger_ms=50,
                acks="all",
                client_id="kafka-python-" + kafka.__version__,
            )
            used[version] = producer.config["api_version"]
            who = f"kafka-python {kafka.__version__} as {version} {codec}"
            futures = []
            for number in range(int(count)):
                key = None if number % 7 == 0 else b"key-%d" % number
                value = None if number % 11 == 3 and key else f"{who}/{number}".encode()
                futures.append(producer.send(topic, key=key, value=value, partition=0))
                written.append([who, text(key), text(value)])
            for future in futures:
                future.get(TIMEOUT_S)
            producer.close()
    return {"written": written, "used": used}


def text(value):
    return None if value is None else bytes(value).decode()


def consumer_of(bootstrap, version, **options):
    return KafkaConsumer(
        bootstrap_servers=bootstrap,
        api_version=api_version(version),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        client_id="kafka-python-" + kafka.__version__,
        **options,
    )


def poll_until(consumer, count):
    rows = []
    deadline = time.time() + TIMEOUT_S
    while len(rows) < count and time.time() < deadline:
        for records in consumer.poll(timeout_ms=200).values():
            rows += [[item.offset, item.timestamp, text(item.key), text(item.value)] for item in records]
    return rows


def read(bootstrap, topic, count, versions):
    rows_by_version = {}
    for version in versions.split(","):
        consumer = consumer_of(bootstrap, version, group_id=None)
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        rows_by_version[version] = poll_until(consumer, int(count))
        consumer.close()
    return {"found": rows_by_version}


def group(bootstrap, topic, count, versions):
    positions = {}
    for version in versions.split(","):
        name = f"group-{topic}-{kafka.__version__}-{version}"
        subscribes = version == "auto" or api_version(version) >= (0, 9)
        options = {"session_timeout_ms": 6000} if subscribes else {}
        partition = TopicPartition(topic, 0)
        for turn in range(2):
            consumer = consumer_of(bootstrap, version, group_id=name, **options)
            if subscribes:
                consumer.subscribe([topic])
            else:
                consumer.assign([partition])
            if turn == 0:
                rows = poll_until(consumer, int(count))
                consumer.commit()
            deadline = time.time() + TIMEOUT_S
            while not consumer.assignment() and time.time() < deadline:
                consumer.poll(timeout_ms=50)
            positions.setdefault(version, []).append(
                [consumer.committed(partition), consumer.position(partition)]
            )
            consumer.close()
        positions[version].append(len(rows))
    return {"positions": positions}


def main():
    try:
        report = {"write": write, "read": read, "group": group}[sys.argv[2]](sys.argv[1], *sys.argv[3:])
        report["ok"] = True
    except Exception:
        report = {"ok": False, "error": traceback.format_exc()}
    print(json.dumps(report))
    return 0 if report["ok"] else 1


sys.exit(main())
