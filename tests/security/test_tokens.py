"""Delegation tokens: issued, renewed and ended by Kafka's requests, and logged in with by SCRAM."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

import barnabas.security.sasl.listener as sasl_listener
from barnabas.cores.acl import Operation, Pattern, Permission, Resource, ResourceType, Rule
from barnabas.kafka_tools.security import delegation_tokens
from barnabas.testing import Broker
from barnabas.wire.errors import ErrorCode
from barnabas.wire.header import encode_request
from barnabas.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from barnabas.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from barnabas.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from barnabas.wire.schema import Message
from tests.security.peer import Peer
from tests.security.test_tls import PATIENCE_S

USERS = ("admin", "alice", "bob", "carol")
MECHANISM = "SCRAM-SHA-256"
RESPONSES = {
    38: CreateDelegationTokenResponse, 39: RenewDelegationTokenResponse, 40: ExpireDelegationTokenResponse,
    41: DescribeDelegationTokenResponse,
}  # fmt: skip


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    options = {
        "listeners": "FREE://127.0.0.1:0,SASL://127.0.0.1:0",
        "listener.security.protocol.map": "FREE:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
        "delegation.token.secret.key": "the brokers' common secret",
        "delegation.token.expiry.time.ms": "60000",
        "delegation.token.max.lifetime.ms": "120000",
    }
    with Broker(options) as started:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{started.ports['FREE']}"})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        changes = [UserScramCredentialUpsertion(user, info, user.encode()) for user in USERS]
        for future in admin.alter_user_scram_credentials(changes).values():
            future.result(PATIENCE_S)
        yield started


def log_in(peer: Peer, user: str, password: str, extension: str = "", mechanism: str = MECHANISM) -> int:
    """SCRAM by hand, with an extension in the first message; the error of the last answer."""
    assert peer.handshake(mechanism) == 0
    digest = "sha256" if mechanism == MECHANISM else "sha512"
    bare = f"n={user},r=abcdefgh{extension}"
    error, first = peer.token(f"n,,{bare}".encode())
    if error:
        return error
    fields = dict(part.split("=", 1) for part in first.decode().split(","))
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    key = hmac.digest(salted, b"Client Key", digest)
    without_proof = f"c=biws,r={fields['r']}"
    signed = f"{bare},{first.decode()},{without_proof}".encode()
    signature = hmac.digest(hashlib.new(digest, key).digest(), signed, digest)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    error, last = peer.token(f"{without_proof},p={proof}".encode())
    if not error:
        server_key = hmac.digest(salted, b"Server Key", digest)
        assert last == b"v=" + base64.b64encode(hmac.digest(server_key, signed, digest))
    return error


def call(peer: Peer, request: Message, version: int = 2) -> Any:
    answer = peer.frame(encode_request(request, version, 7, "tests")[4:])
    kind: Any = RESPONSES[request.API_KEY]
    return kind.decode(memoryview(answer), version, 5)


def ask(broker: Broker, user: str, request: Message, version: int = 2) -> Any:
    """The answer to one request of a user on a connection of its own."""
    with Peer(f"127.0.0.1:{broker.ports['SASL']}") as peer:
        assert log_in(peer, user, user) == 0
        return call(peer, request, version)


def create(broker: Broker, user: str, *renewers: str, life_ms: int = -1) -> CreateDelegationTokenResponse:
    rows = [CreatableRenewers(principal_type="User", principal_name=name) for name in renewers]
    answer = ask(broker, user, CreateDelegationTokenRequest(renewers=rows, max_lifetime_ms=life_ms))
    assert isinstance(answer, CreateDelegationTokenResponse)
    assert answer.error_code == 0
    return answer


def try_token(broker: Broker, token_id: str, password: bytes, mechanism: str = MECHANISM) -> int:
    with Peer(f"127.0.0.1:{broker.ports['SASL']}") as peer:
        return log_in(peer, token_id, base64.b64encode(password).decode(), ",tokenauth=true", mechanism)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_login_with_a_token_acts_as_its_owner(broker: Broker, mechanism: str) -> None:
    token = create(broker, "alice")
    with Peer(f"127.0.0.1:{broker.ports['SASL']}") as peer:
        password = base64.b64encode(token.hmac).decode()
        assert log_in(peer, token.token_id, password, ",tokenauth=true", mechanism) == 0
        connections = list(broker.inside.server.services.listeners.connections)
        assert [c.principal for c in connections if c.sasl is not None and c.sasl.by_token] == ["User:alice"]
        for request in (
            CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1),
            DescribeDelegationTokenRequest(owners=None),
            RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=-1),
            ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1),
        ):  # a token makes no further tokens
            assert call(peer, request).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert try_token(broker, token.token_id, b"guessed", mechanism) == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert try_token(broker, "nobody's", token.hmac, mechanism) == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_token_is_no_user_and_a_user_no_token(broker: Broker) -> None:
    token = create(broker, "alice")
    with Peer(f"127.0.0.1:{broker.ports['SASL']}") as peer:
        password = base64.b64encode(token.hmac).decode()
        assert log_in(peer, token.token_id, password) == ErrorCode.SASL_AUTHENTICATION_FAILED
    with Peer(f"127.0.0.1:{broker.ports['SASL']}") as peer:
        assert log_in(peer, "alice", "alice", ",tokenauth=true") == ErrorCode.SASL_AUTHENTICATION_FAILED
    with Peer(f"127.0.0.1:{broker.ports['SASL']}") as peer:  # RFC 5802: unknown extensions are ignored
        assert log_in(peer, "alice", "alice", ",x=1") == 0


def test_a_token_that_exists_takes_the_same_way_as_one_that_does_not(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One derivation of a key, in a thread: neither the time of the answer nor the loop shows which tokens exist."""
    token = create(broker, USERS[0])
    loops_thread = broker.inside.call(threading.get_ident)
    derive, threads = sasl_listener.new_credential, []

    def noting(*args: Any) -> Any:
        threads.append(threading.get_ident())
        return derive(*args)

    monkeypatch.setattr(sasl_listener, "new_credential", noting)
    for token_id, password, error in (
        (token.token_id, token.hmac, 0), (token.token_id, b"wrong", 58), ("no-such-token", b"x", 58)
    ):  # fmt: skip
        threads.clear()
        assert try_token(broker, token_id, password) == error
        assert len(threads) == 1
        assert loops_thread not in threads


def test_owners_and_renewers_renew_and_end_tokens(broker: Broker) -> None:
    now_ms = time.time() * 1000
    token = create(broker, "alice", "bob", life_ms=90_000)
    assert abs(token.expiry_timestamp_ms - now_ms - 60_000) < PATIENCE_S * 1000
    assert token.max_timestamp_ms - token.issue_timestamp_ms == 90_000

    def renew(user: str, period_ms: int) -> Any:
        return ask(broker, user, RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=period_ms))

    assert renew("carol", -1).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert renew("bob", 10**9).expiry_timestamp_ms == token.max_timestamp_ms
    unknown = RenewDelegationTokenRequest(hmac=b"unknown", renew_period_ms=1)
    assert ask(broker, "alice", unknown).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND

    def expire(user: str, period_ms: int) -> Any:
        return ask(
            broker, user, ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=period_ms)
        )

    assert expire("carol", -1).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert expire("alice", 30_000).expiry_timestamp_ms < token.max_timestamp_ms
    assert try_token(broker, token.token_id, token.hmac) == 0
    assert expire("bob", -1).error_code == 0
    assert try_token(broker, token.token_id, token.hmac) == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert expire("bob", -1).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_a_token_that_has_expired_is_refused_and_removed(broker: Broker) -> None:
    token = create(broker, "alice", life_ms=1)
    time.sleep(0.01)
    assert try_token(broker, token.token_id, token.hmac) == ErrorCode.SASL_AUTHENTICATION_FAILED
    answer = ask(broker, "alice", RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=-1))
    assert answer.error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    services = broker.inside.server.services
    broker.inside.wait_for(services.tokens.remove_expired())
    assert token.token_id not in services.image.tokens


def test_who_sees_which_tokens_and_acts_for_others(broker: Broker) -> None:
    token = create(broker, "alice")

    def seen(user: str) -> set[str]:
        answer = ask(broker, user, DescribeDelegationTokenRequest(owners=None), 3)
        assert isinstance(answer, DescribeDelegationTokenResponse)
        return {row.token_id for row in answer.tokens}

    assert token.token_id in seen("alice")
    assert token.token_id in seen("admin")
    assert token.token_id not in seen("carol")
    for_alice = CreateDelegationTokenRequest(
        owner_principal_type="User", owner_principal_name="alice", renewers=[], max_lifetime_ms=-1
    )
    refused = ask(broker, "carol", for_alice, 3)
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    authorizer = broker.inside.server.services.authorizer
    assert authorizer is not None
    user = Resource(ResourceType.USER, Pattern.LITERAL, "User:alice")
    allowed = frozenset(
        Rule("User:carol", "*", operation, Permission.ALLOW)
        for operation in (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS)
    )
    broker.inside.call(lambda: authorizer.set_rules([(user, allowed)]))
    token_made = ask(broker, "carol", for_alice, 3)
    assert (token_made.error_code, token_made.principal_name, token_made.token_requester_principal_name) == (
        0,
        "alice",
        "carol",
    )
    assert {token.token_id, token_made.token_id} <= seen("carol")
    anonymous = encode_request(for_alice, 3, 7, "tests")[4:]
    with Peer(f"127.0.0.1:{broker.ports['FREE']}") as peer:
        answer = CreateDelegationTokenResponse.decode(memoryview(peer.frame(anonymous)), 3, 5)
    assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert not answer.hmac


def test_tokens_lie_in_kafkas_nodes_and_survive_a_restart(tmp_path: Path) -> None:
    options = {"delegation.token.secret.key": "a secret"}
    data = tmp_path / "data"
    with Broker(options, data_dir=data) as broker:
        services = broker.inside.server.services
        token = broker.inside.wait_for(services.tokens.create("User:a b", "User:c", ("User:r*",), -1))
        raw, _ = broker.inside.wait_for(services.controller.tree.get(f"/delegation_token/tokens/{token.id}"))
        row = json.loads(raw)
        assert list(row) == [
            "version", "owner", "tokenRequester", "renewers", "issueTimestamp", "maxTimestamp", "expiryTimestamp",
            "tokenId",
        ]  # fmt: skip
        assert (row["owner"], row["renewers"]) == ("User%3Aa%20b", ["User%3Ar%2A"])
        expected = hmac.digest(b"a secret", token.id.encode(), "sha512")
        assert services.tokens.hmac_of(token.id) == expected
    with Broker(options, data_dir=data) as broker:
        assert broker.inside.server.services.image.tokens == {token.id: token}


def test_kafkas_command(broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={MECHANISM}\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="bob" password="bob";\n'
    )
    where = ["--bootstrap-server", f"127.0.0.1:{broker.ports['SASL']}", "--command-config", str(config)]
    creation = ["--create", "--max-life-time-period", "-1", "--renewer-principal", "User:carol"]
    assert delegation_tokens.main([*where, *creation]) == 0
    row = capsys.readouterr().out.splitlines()[-1].split()
    assert row[2] == "User:bob"
    hmac_text = row[1]
    assert delegation_tokens.main([*where, "--renew", "--renew-time-period", "-1", "--hmac", hmac_text]) == 0
    assert delegation_tokens.main([*where, "--describe"]) == 0
    assert row[0] in capsys.readouterr().out
    assert (
        delegation_tokens.main([*where, "--expire", "--expiry-time-period", "-1", "--hmac", hmac_text]) == 0
    )
    capsys.readouterr()
    assert delegation_tokens.main([*where, "--describe"]) == 0
    assert row[0] not in capsys.readouterr().out
