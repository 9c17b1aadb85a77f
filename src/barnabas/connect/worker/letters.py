"""Writes dead letters, and creates their topic."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Producer

from barnabas.admin import NewTopic
from barnabas.admin.blocking import Admin
from barnabas.client.errors import ClientError
from barnabas.connect.errors import ConnectError
from barnabas.connect.worker.failing import Letter
from barnabas.wire.errors import ErrorCode

log = logging.getLogger("barnabas.connect")


def letters_topic(admin: Admin, config: Mapping[str, Any]) -> str | None:
    """The topic for a connector's dead letters, which is created; None if it has none. Raises ConnectError."""
    topic = str(config["errors.deadletterqueue.topic.name"] or "")
    if not topic or config["errors.tolerance"] != "all":
        return None
    try:
        if topic not in admin.topics.describe([topic]).done:
            wanted = int(config["errors.deadletterqueue.topic.replication.factor"])
            brokers = len(admin.cluster.describe().brokers)
            new = NewTopic(topic, 1, min(wanted, brokers))
            admin.topics.create([new]).except_for(ErrorCode.TOPIC_ALREADY_EXISTS).require()
    except ClientError as error:
        raise ConnectError(f"the topic of dead letters {topic} cannot be created: {error}") from error
    return topic


def send_letter(producer: Producer, topic: str, letter: Letter) -> None:
    """Hands a letter to the producer, whose flush or commit says whether it was written."""
    key, value, headers = letter
    while True:
        try:
            producer.produce(topic, value, key, headers=headers)
            return
        except BufferError:
            producer.poll(0.1)
