"""The matrix of refusals.py against a broker: every refusal is an answer that can be read, and says what Kafka's says."""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import Final
from uuid import UUID

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kio.serial.errors import SerialError

from barnabas.broker.api.table import APIS
from barnabas.cores.acl import Pattern, Resource, ResourceType
from barnabas.testing import Broker
from barnabas.wire.header import decode_response_header
from barnabas.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from barnabas.wire.primitives import WireError
from tests.security.refusals import (
    ABSENT,
    CLOSED,
    LOGINS,
    NO_RIGHT,
    NOWHERE,
    PATIENCE_S,
    RIGHTS,
    Case,
    Matrix,
    cases,
    client,
    decoded,
    login_options,
    recorded,
    refusals,
)
from tests.unit.wire.test_wire_kio import kio_versions, through_kio

ANOTHER_ORDER: Final = {
    ("OffsetDelete", "DELETE GROUP"): "Kafka finds first that the group does not exist",
    ("DeleteShareGroupOffsets", "DELETE GROUP"): "the same",
    ("DescribeShareGroupOffsets", "READ GROUP"): "we find first that the group does not exist",
    ("DescribeShareGroupOffsets", "DELETE GROUP"): "the same",
    ("DescribeShareGroupOffsets", "DESCRIBE GROUP"): "the same",
    ("ShareAcknowledge", "READ GROUP"): "Kafka finds first that the session does not exist",
}
"""Requests with two faults, of which Kafka names the other one."""
OPTIONS: Final = {
    **login_options(),
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}
TOPIC_ID: Final = UUID(int=0x5678)
IDS_ARE_SECRETS: Final = frozenset(("Produce", "Fetch", "Metadata", "DeleteTopics"))
"""Who knows a topic's random id, and has no right, learns that it exists, as from Kafka."""
KIO_CANNOT: Final = "Cannot parse negative timestamp"
"""Kafka sends negative times with refusals."""


@pytest.fixture(scope="module")
def frames() -> dict[Case, bytes | None]:
    """The answer to every request of the matrix; None where the connection was closed instead."""
    errors: list[str] = []

    class Errors(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            errors.append(f"{record.getMessage()} {record.exc_info and record.exc_info[1]}")

    handler, logger = Errors(logging.ERROR), logging.getLogger("barnabas")
    with Broker(OPTIONS) as broker:
        matrix = Matrix(broker.bootstrap)
        matrix.prepare()
        logger.addHandler(handler)
        frames_by_case: dict[Case, bytes | None] = {}
        for case in cases():
            frame = matrix.ask(case)
            # The topic gets another id each time that a case has deleted it.
            frames_by_case[case] = frame and frame.replace(matrix.topic_id.bytes, TOPIC_ID.bytes)
            matrix.restore(case, frame)
        logger.removeHandler(handler)
        matrix.close()
    assert not errors, f"{len(errors)} errors in the broker's log, such as {errors[0]}"
    return frames_by_case


def test_every_api_is_asked_in_every_version_by_every_user(frames: dict[Case, bytes | None]) -> None:
    asked = {(case.api.key, case.version, case.right) for case in frames}
    for api in APIS:
        if api.key not in LOGINS:
            assert {(api.key, version, right) for version in api.versions for right in RIGHTS} <= asked


def test_every_refusal_can_be_read(frames: dict[Case, bytes | None]) -> None:
    wrong: list[str] = []
    for (key, version), unique in _different(frames).items():
        theirs = kio_versions(unique[0][0].api.response).get(version) if key < 30_000 else None
        for case, frame in unique:
            if frame is None:
                wrong.append(f"{case}: the connection was closed")
                continue
            try:
                answer = decoded(case, frame)
                body = answer.encode(version)
                if not frame.endswith(body):
                    wrong.append(f"{case}: is not what it is when it is encoded again")
                elif theirs is not None:
                    through_kio(theirs, body)
            except (WireError, SerialError) as error:
                if str(error) != KIO_CANNOT:
                    wrong.append(f"{case}: {error}")
    assert not wrong, f"{len(wrong)} answers: " + "\n".join(wrong[:20])


def _different(
    frames: dict[Case, bytes | None],
) -> dict[tuple[int, int], list[tuple[Case, bytes | None]]]:
    """Each answer once, by API key and version."""
    seen: set[tuple[int, int, bytes | None]] = set()
    frames_by_api: dict[tuple[int, int], list[tuple[Case, bytes | None]]] = defaultdict(list)
    for case, frame in frames.items():
        key = (case.api.key, case.version, frame)
        if key not in seen:
            seen.add(key)
            frames_by_api[key[:2]].append((case, frame))
    return frames_by_api


def test_a_refusal_does_not_say_whether_something_exists(frames: dict[Case, bytes | None]) -> None:
    """To a user without rights, what exists and what does not exist look the same, apart from their names."""
    wrong: list[str] = []
    for case, frame in frames.items():
        kind = case.kind.replace("absent", "present")
        if case.right != NO_RIGHT or not case.kind.startswith("absent"):
            continue
        present = frames[case._replace(kind=kind)]
        assert frame is not None
        assert present is not None
        for name, absent in ABSENT.items():
            present = present.replace(name.encode(), absent.encode())
        present = present.replace(TOPIC_ID.bytes, NOWHERE.bytes)
        if present != frame and case.api.name not in IDS_ARE_SECRETS and case.api.rights:
            shown = (decoded(case, present), decoded(case, frame))
            wrong.append(f"{case}: {shown[0]} instead of {shown[1]}")
    assert not wrong, f"{len(wrong)} answers: " + "\n".join(wrong[:20])


def test_refusals_are_those_of_kafka(frames: dict[Case, bytes | None]) -> None:
    """Versions that Kafka no longer serves are not compared."""
    kafka, wrong = recorded(), []
    for case, frame in frames.items():
        theirs = kafka.get(case, CLOSED)
        ours = CLOSED if frame is None else refusals(decoded(case, frame))
        if theirs not in (CLOSED, ours) and (case.api.name, case.right) not in ANOTHER_ORDER:
            wrong.append(f"{case}: Kafka's errors are [{theirs}], ours [{ours}]")
    assert len(kafka) > 10_000
    assert not wrong, f"{len(wrong)} answers: " + "\n".join(wrong[:20])


def test_pages_of_topics_lead_past_those_that_are_hidden() -> None:
    """By the pages of DescribeTopicPartitions, a client that may see some topics gets all of them and nothing else."""
    topics = {"a-seen": 3, "b-hidden": 2, "c-seen": 1, "d-hidden": 5, "e-absent": 0, "f-seen": 2}
    with Broker(OPTIONS) as broker:
        matrix = Matrix(broker.bootstrap)
        new_topics = [NewTopic(name, count) for name, count in topics.items() if count]
        admin = AdminClient(client(broker.bootstrap, "admin"))
        for future in admin.create_topics(new_topics).values():
            future.result(PATIENCE_S)
        matrix.allow("DESCRIBE TOPIC", Resource(ResourceType.TOPIC, Pattern.LITERAL, "e-absent"))
        for name in ("a-seen", "c-seen", "f-seen"):
            matrix.allow("DESCRIBE TOPIC", Resource(ResourceType.TOPIC, Pattern.LITERAL, name))
        for named in ([], sorted(topics)):
            for limit in (1, 2, 3, 100):
                seen, refused, cursors = _pages(matrix, named, limit)
                shown = [
                    (name, index) for name in ("a-seen", "c-seen", "f-seen") for index in range(topics[name])
                ]
                assert seen == shown, (named, limit)
                assert refused == ({"b-hidden": 29, "d-hidden": 29, "e-absent": 3} if named else {})
                assert not [name for name in cursors if "hidden" in name]
        matrix.close()


def _pages(
    matrix: Matrix, named: list[str], limit: int
) -> tuple[list[tuple[str, int]], dict[str, int], list[str]]:
    """Partitions in the order of the pages, errors by topic, and the names in the cursors."""
    seen: list[tuple[str, int]] = []
    refused: dict[str, int] = {}
    cursors: list[str] = []
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in named], response_partition_limit=limit
    )
    while True:
        frame = matrix.ask_as("DESCRIBE TOPIC", request, 0)
        assert frame is not None
        answer = DescribeTopicPartitionsResponse.decode(frame, 0, decode_response_header(frame, 75, 0)[1])
        for topic in answer.topics:
            if topic.error_code:
                refused[topic.name] = topic.error_code
            seen += [(topic.name, row.partition_index) for row in topic.partitions]
        if answer.next_cursor is None:
            return seen, refused, cursors
        cursors.append(answer.next_cursor.topic_name)
        assert len(cursors) < 50
        request.cursor = Cursor(
            topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index
        )
