"""Every API in every version, asked by users who have no right, or exactly one: what is refused, and with which error.

The requests are made from the table of APIs, so that a new API is among them by itself. What Apache Kafka answers to
the same requests is in refusals.json, recorded by `python -m tests.security.refusals` (it needs Java and Maven).
"""

from __future__ import annotations

import json
import socket
import sys
import tempfile
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.broker.api.table import BY_KEY, Api
from barnabas.cores.acl import CLUSTER_NAME, SUPPORTED, Operation, Pattern, Permission, Resource, ResourceType
from barnabas.wire.errors import ErrorCode
from barnabas.wire.header import decode_response_header, encode_request
from barnabas.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.wire.messages.produce import ProduceRequest
from barnabas.wire.messages.share_fetch import ShareFetchRequest
from barnabas.wire.schema import Message, Struct
from tests.security.hidden import GROUP, REFUSED, TOPIC, TXN, codes, samples
from tests.security.peer import Peer

RECORDED: Final = Path(__file__).parent / "refusals.json"
PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
NO_RIGHT: Final = "none"
RIGHTS: Final = [
    NO_RIGHT,
    *(
        f"{operation.name} {kind.name}"
        for kind, operations in SUPPORTED.items()
        for operation in sorted(operations)
    ),
]
"""The users of the matrix; each is named after its only right."""
USERS: Final = {right: right.lower().replace(" ", "-").replace("_", "") for right in RIGHTS}
NAME_OF: Final = {
    ResourceType.TOPIC: TOPIC, ResourceType.GROUP: GROUP, ResourceType.CLUSTER: CLUSTER_NAME,
    ResourceType.TRANSACTIONAL_ID: TXN, ResourceType.DELEGATION_TOKEN: "hidden-token", ResourceType.USER: "User:alice",
}  # fmt: skip
UNMADE: Final = "unmade-topic"
"""Does not exist; the rules for the topic hold for it as well."""
NOWHERE: Final = UUID(int=0x1234)
ABSENT: Final = {TOPIC: "absent-topic", GROUP: "absent-group", TXN: "absent-txn"}
OTHER: Final = {"resource_type": 4, "resource_type_filter": 4, "key_type": 1}
LOGINS: Final = frozenset((17, 36))
"""APIs that are not asked here: after a login they have a meaning of their own."""
PATIENCE_S: Final = 60
CLOSED: Final = "closed"


class Case(NamedTuple):
    """One request of the matrix. kind: "present" and "absent" say whether what it names exists; "other" asks about something
    of another type (a broker's options, a transaction's coordinator); "creating" names a topic that would have to be made.
    """

    api: Api
    version: int
    right: str
    kind: str

    def __str__(self) -> str:
        return f"{self.api.name} v{self.version}, {self.right}, {self.kind}"


def cases(keys: Mapping[int, range] | None = None) -> Iterator[Case]:
    """All of them, one API after another; keys: only these APIs and versions."""
    for api in BY_KEY.values():
        for version in api.versions:
            if api.key in LOGINS or (keys is not None and version not in keys.get(api.key, range(0))):
                continue
            for right in RIGHTS:
                for kind in kinds_of(api):
                    if (kind, api.key, version) == ("creating", 19, 0):
                        continue  # it cannot ask what would happen
                    yield Case(api, version, right, kind)


def kinds_of(api: Api) -> list[str]:
    """The kinds of requests that differ for this API."""
    fields = names_of(api.request)
    by_id = ["present id", "absent id"] if {"topic_id", "name"} <= fields and api.key in (3, 20) else []
    creating = ["creating"] if "allow_auto_topic_creation" in fields or api.key == 19 else []
    return ["present", "absent", *by_id, *creating, *(["other"] if fields & OTHER.keys() else [])]


def names_of(kind: type[Struct]) -> set[str]:
    """The names of all fields of a message, also of those in its structs."""
    names = set(kind.FIELDS)
    for field in kind.FIELDS.values():
        if isinstance(field.element, type):
            names |= names_of(field.element)
    return names


def request_of(case: Case, topic_id: UUID) -> Message:
    """The request of a case."""
    request = case.api.request(**samples(case.api.request, case.version, topic_id))
    if isinstance(request, ProduceRequest):
        request.transactional_id = (
            None  # Kafka asks for that right only where the records are a transaction's
        )
    if isinstance(request, ShareFetchRequest):  # one that opens a session cannot acknowledge
        for part in (part for topic in request.topics for part in topic.partitions):
            part.acknowledgement_batches = []
    _name(request, case)
    if case.kind.startswith("absent"):
        _replace(request, {**ABSENT, topic_id: NOWHERE})
    elif case.kind == "creating":
        _replace(request, {TOPIC: UNMADE})
        _set(request, {"allow_auto_topic_creation": True, "validate_only": True}, case.version)
        _set(request, {"assignments": [], "configs": []}, case.version)
    elif case.kind == "other":
        _set(request, {**OTHER, "resource_name": "1"}, case.version)
    return request


def _name(part: Struct, case: Case) -> None:
    """Leave one of a topic's name and its id, where a row has both; requests with both are refused for that."""
    for name in part.FIELDS:
        value = getattr(part, name)
        for row in value if isinstance(value, list) else []:
            if isinstance(row, Struct):
                _name(row, case)
    name = next((name for name in ("name", "topic") if name in part.FIELDS), "")
    if (
        name
        and "topic_id" in part.FIELDS
        and all(part.FIELDS[field].exists_in(case.version) for field in (name, "topic_id"))
    ):
        if case.kind.endswith("id") and part.FIELDS[name].nullable_in(case.version):
            setattr(part, name, None)
        else:
            part.topic_id = UUID(int=0)  # type: ignore[attr-defined]


def _replace(part: Struct, values: Mapping[Any, Any]) -> None:
    for name in part.FIELDS:
        value = getattr(part, name)
        if isinstance(value, str | UUID):
            setattr(part, name, values.get(value, value))
        elif isinstance(value, list):
            setattr(
                part, name, [values.get(row, row) if isinstance(row, str | UUID) else row for row in value]
            )
            for row in value:
                if isinstance(row, Struct):
                    _replace(row, values)
        elif isinstance(value, Struct):
            _replace(value, values)


def _set(part: Struct, values: Mapping[str, Any], version: int) -> None:
    for name, field in part.FIELDS.items():
        value = getattr(part, name)
        if name in values and field.exists_in(version):
            setattr(part, name, values[name])
        for row in value if isinstance(value, list) else [value]:
            if isinstance(row, Struct):
                _set(row, values, version)


# --- a broker with the users of the matrix ---------------------------------------------------------------------------


def login_options() -> dict[str, str]:
    """The options of a broker that lets the users of the matrix log in, without its listener and its authorizer."""
    names = ["admin", *USERS.values()]
    users = " ".join(f'user_{name}="{name}-pw"' for name in names)
    return {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {users};",
        "auto.create.topics.enable": "true",
    }


def client(bootstrap: str, user: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap, "security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN",
        "sasl.username": user, "sasl.password": f"{user}-pw", "log_level": 0,
    }  # fmt: skip


def short_id(topic_id: UUID) -> str:
    """An id as Kafka writes it."""
    return urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


class Matrix:
    """Asks one broker. A user's connection is kept until the broker closes it."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._peers: dict[str, Peer] = {}
        self._admin = AdminClient(client(bootstrap, "admin"))
        self.topic_id = UUID(int=0)

    def prepare(self) -> None:
        """The rules, and the topic that is named."""
        for right in RIGHTS[1:]:
            kind = ResourceType[right.partition(" ")[2]]
            for name in (NAME_OF[kind], *([UNMADE] if kind is ResourceType.TOPIC else [])):
                self.allow(right, Resource(kind, Pattern.LITERAL, name))
        self.create_topic()
        for key_type, key in ((0, GROUP), (1, TXN), (2, f"{GROUP}:{short_id(self.topic_id)}:0")):
            self._await_coordinator(key_type, key)

    def allow(self, right: str, resource: Resource) -> None:
        """A rule for the user with this right."""
        row = AclCreation(
            resource_type=resource.type, resource_name=resource.name, resource_pattern_type=resource.pattern,
            principal=f"User:{USERS[right]}", host="*", operation=Operation[right.partition(" ")[0]],
            permission_type=Permission.ALLOW,
        )  # fmt: skip
        frame = self._ask("admin", CreateAclsRequest(creations=[row]), 3)
        assert frame is not None
        answer = CreateAclsResponse.decode(frame, 3, decode_response_header(frame, 30, 3)[1])
        assert not answer.results[0].error_code, answer

    def _await_coordinator(self, key_type: int, key: str) -> None:
        """Kafka makes the topics of its coordinators when the first client asks for one."""
        asked = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        while True:
            frame = self._ask("admin", asked, 6)
            assert frame is not None
            answer = FindCoordinatorResponse.decode(frame, 6, decode_response_header(frame, 10, 6)[1])
            if not answer.coordinators[0].error_code:
                break
            time.sleep(0.05)
        while key_type == 0:
            frame = self._ask("admin", HeartbeatRequest(group_id=GROUP, member_id="m"), 4)
            assert frame is not None
            answered = HeartbeatResponse.decode(frame, 4, decode_response_header(frame, 12, 4)[1])
            if answered.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                break
            time.sleep(0.05)

    def restore(self, case: Case, frame: bytes | None) -> None:
        """Make the topic again if the case has deleted it; Kafka shows it for a while after it has confirmed that."""
        if case.api.name == "DeleteTopics" and frame is not None and 0 in codes(decoded(case, frame)):
            asked = MetadataRequest(
                topics=[MetadataRequestTopic(name=TOPIC, topic_id=UUID(int=0))],
                allow_auto_topic_creation=False,
            )
            while not self._row_of(asked).error_code:
                time.sleep(0.01)
            self.create_topic()

    def create_topic(self) -> None:
        """Create the topic, unless it is there."""
        asked = MetadataRequest(
            topics=[MetadataRequestTopic(name=TOPIC, topic_id=UUID(int=0))], allow_auto_topic_creation=False
        )
        if self._row_of(asked).error_code:
            self._admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(PATIENCE_S)
        while self._row_of(asked).error_code:
            time.sleep(0.01)
        self.topic_id = self._row_of(asked).topic_id

    def _row_of(self, asked: MetadataRequest) -> Any:
        answer = self._ask("admin", asked, 12)
        assert answer is not None
        response = MetadataResponse.decode(answer, 12, decode_response_header(answer, 3, 12)[1])
        return response.topics[0]

    def ask(self, case: Case) -> bytes | None:
        """The frame of the answer; None when the broker closes the connection instead."""
        return self.ask_as(case.right, request_of(case, self.topic_id), case.version)

    def ask_as(self, right: str, request: Message, version: int) -> bytes | None:
        """As `ask`, for any request, by the user with this right."""
        return self._ask(USERS[right], request, version)

    def _ask(self, user: str, request: Message, version: int) -> bytes | None:
        frame = encode_request(request, version, 7, "refusals")[4:]
        peer = self._peers.get(user)
        if peer is None:
            peer = self._peers[user] = Peer(self.bootstrap)
            peer.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            assert peer.handshake("PLAIN") == 0
            assert peer.token(f"\0{user}\0{user}-pw".encode())[0] == 0
        answer = peer.frame(frame)
        if not answer:
            self._peers.pop(user).sock.close()
            return None
        return answer

    def close(self) -> None:
        for peer in self._peers.values():
            peer.sock.close()


def decoded(case: Case, frame: bytes) -> Message:
    """The answer in a frame. Raises WireError."""
    view = memoryview(frame)
    return case.api.response.decode(
        view, case.version, decode_response_header(view, case.api.key, case.version)[1]
    )


def refusals(answer: Message) -> str:
    """The errors of an answer that speak of a missing right, separated by spaces."""
    return " ".join(map(str, sorted(set(codes(answer)) & REFUSED)))


# --- what Kafka answers ----------------------------------------------------------------------------------------------

Answers = dict[str, dict[str, dict[str, str]]]
"""What is answered, for each API and kind of request, by right and versions ("0-5"). Rights that change nothing are
left out: their answers are those without any right.
"""


def compact(answers: Mapping[Case, str]) -> Answers:
    """The answers in a form that a person can read."""
    grouped: dict[str, dict[str, dict[int, str]]] = {}
    for (api, version, right, kind), answer in answers.items():
        grouped.setdefault(f"{api.name} {kind}", {}).setdefault(right, {})[version] = answer
    return {
        name: {
            right: _ranges(rows)
            for right, rows in rights.items()
            if right == NO_RIGHT or rows != rights[NO_RIGHT]
        }
        for name, rights in grouped.items()
    }


def _ranges(answers: Mapping[int, str]) -> dict[str, str]:
    ranges: list[tuple[int, int, str]] = []
    for version, answer in sorted(answers.items()):
        if ranges and ranges[-1][2] == answer:
            ranges[-1] = (ranges[-1][0], version, answer)
        else:
            ranges.append((version, version, answer))
    return {f"{low}-{high}": answer for low, high, answer in ranges}


def recorded() -> dict[Case, str]:
    """Kafka's answers."""
    answers_by_case = {}
    answers: Answers = json.loads(RECORDED.read_text())
    for case in cases():
        rights = answers.get(f"{case.api.name} {case.kind}", {})
        for versions, answer in rights.get(case.right, rights.get(NO_RIGHT, {})).items():
            low, high = map(int, versions.split("-"))
            if low <= case.version <= high:
                answers_by_case[case] = answer
    return answers_by_case


def ask_all(matrix: Matrix, keys: Mapping[int, range]) -> dict[Case, str]:
    """The refusals of each answer; "closed" where the connection ended."""
    answers = {}
    for case in cases(keys):
        frame = matrix.ask(case)
        answers[case] = CLOSED if frame is None else refusals(decoded(case, frame))
        matrix.restore(case, frame)
    return answers


def main() -> int:
    """Start an Apache Kafka, ask it, and write refusals.json."""
    from bench.brokers import ApacheKafka

    from tests.security.kafka_broker import SecuredKafka

    assert issubclass(SecuredKafka, ApacheKafka)
    with tempfile.TemporaryDirectory() as folder:
        broker = SecuredKafka(Path(folder))
        broker.start()
        try:
            matrix = Matrix(f"127.0.0.1:{broker.port}")
            matrix.prepare()
            answers = ask_all(matrix, broker.versions())
        finally:
            broker.stop()
    RECORDED.write_text(json.dumps(compact(answers), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
