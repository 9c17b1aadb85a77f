"""`barnabas.admin` on a broker with logins and an authorizer: rules, SCRAM users, tokens, and what users may not do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.admin import (
    AclFilter,
    AclRule,
    Admin,
    Mechanism,
    NewCredential,
    NewTopic,
    OldCredential,
    Operation,
    Pattern,
    Permission,
    Principal,
    ResourceError,
    ResourceType,
)
from barnabas.client.errors import AuthenticationFailed
from barnabas.testing import Broker
from barnabas.wire.errors import ErrorCode
from tests.security.test_authorizer import SECURED

OPTIONS = {
    **SECURED,
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "delegation.token.secret.key": "the brokers' common secret",
}


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    with Broker(OPTIONS) as broker:
        yield broker


def login(broker: Broker, user: str, password: str | None = None, mechanism: str = "PLAIN") -> Admin:
    return Admin(
        {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password or f"{user}-pw",
        }
    )


@pytest.fixture
def admin(secured: Broker) -> Iterator[Admin]:
    with login(secured, "admin") as admin:
        yield admin


def test_rules_are_added_listed_and_deleted(secured: Broker, admin: Admin) -> None:
    admin.topics.create([NewTopic("orders-1", 1, 1), NewTopic("other", 1, 1)]).require()
    read = AclRule(ResourceType.TOPIC, "orders", "User:alice", Operation.DESCRIBE, pattern=Pattern.PREFIXED)
    deny = AclRule(
        ResourceType.TOPIC, "orders-2", "User:alice", Operation.ALL, Permission.DENY, host="10.0.0.1"
    )
    bad = AclRule(ResourceType.CLUSTER, "not-the-cluster", "User:alice", Operation.ALTER)
    results = admin.acls.create([read, deny, bad])
    assert list(results.done) == [read, deny]
    assert "User:alice on cluster not-the-cluster" in str(results.failed[bad])
    assert set(admin.acls.list()) == {read, deny}
    assert list(admin.acls.list(AclFilter(ResourceType.TOPIC, "orders-1", pattern=Pattern.MATCH))) == [read]
    with login(secured, "alice") as alice:
        assert list(alice.topics.list()) == ["orders-1"]
        topics = alice.topics.describe(["orders-1", "other"], rights=True)
        assert topics["orders-1"].rights == {Operation.DESCRIBE}
        hidden = topics.failed["other"]
        assert isinstance(hidden, ResourceError)
        assert hidden.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert "a rule for this user has to allow it" in str(hidden)
        with pytest.raises(ResourceError, match="cannot list the rules"):
            alice.acls.list()
    which = AclFilter(principal="User:alice")
    assert set(admin.acls.delete([which])[which]) == {read, deny}
    assert list(admin.acls.list()) == []


@pytest.mark.parametrize("mechanism", [Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512])
def test_users_log_in_with_credentials_that_were_set(
    secured: Broker, admin: Admin, mechanism: Mechanism
) -> None:
    user = f"scram-{mechanism}"
    weak = NewCredential("weak", "secret", iterations=5)
    results = admin.users.alter(
        [NewCredential(user, "secret", mechanism, 5000), weak, NewCredential("no", "")]
    )
    assert results.done == {user: None}
    assert "5 iterations are not from 4096 to 16384" in str(results.failed["weak"])
    assert "the password is empty" in str(results.failed["no"])
    assert "secret" not in repr(weak)
    assert admin.users.describe([user])[user] == [(mechanism, 5000)]
    assert user in admin.users.describe().done
    with login(secured, user, "secret", mechanism.label) as other:
        assert other.cluster.describe().brokers
    with login(secured, user, "wrong", mechanism.label) as other, pytest.raises(AuthenticationFailed):
        other.cluster.describe()
    admin.users.alter(deletions=[OldCredential(user, mechanism)]).require()
    missing = admin.users.describe([user]).failed[user]
    assert isinstance(missing, ResourceError)
    assert missing.code == ErrorCode.RESOURCE_NOT_FOUND


def test_tokens(admin: Admin, secured: Broker) -> None:
    token = admin.tokens.create(renewers=[Principal("User", "alice")], max_lifetime_ms=100_000)
    assert str(token.owner) == "User:admin"
    assert token.requester == token.owner
    assert token.hmac not in repr(token).encode()
    assert [(token_found.id, token_found.renewers) for token_found in admin.tokens.list()] == [
        (token.id, (Principal("User", "alice"),))
    ]
    with login(secured, "alice") as alice:
        assert alice.tokens.renew(token.hmac, period_ms=50_000) <= token.expires_at_most_ms
    assert admin.tokens.create(owner=Principal("User", "bob")).owner.name == "bob"
    admin.tokens.expire(token.hmac)
    with pytest.raises(ResourceError, match="it has expired"):
        admin.tokens.renew(token.hmac)


def test_a_wrong_password_is_reported_at_once(secured: Broker) -> None:
    with login(secured, "admin", "wrong") as wrong:
        with pytest.raises(AuthenticationFailed, match=r"refused the credentials of admin \(PLAIN\)"):
            wrong.topics.list()
        with pytest.raises(AuthenticationFailed):
            wrong.topics.create([NewTopic("x", 1, 1)])
