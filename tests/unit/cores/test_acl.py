"""Access rules: what they allow, which filters find them, how they lie in the tree."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cores.acl import (
    SUPPORTED,
    AclIndex,
    Filter,
    Operation,
    Pattern,
    Permission,
    Resource,
    ResourceType,
    Rule,
    Rules,
    decode_rules,
    encode_rules,
    matching,
    resource_of,
    resource_path,
)

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
ALLOW, DENY = Permission.ALLOW, Permission.DENY


def index_of(rules: Rules) -> AclIndex:
    index = AclIndex()
    for resource, rules_of_resource in rules.items():
        index.set(resource, rules_of_resource)
    return index


def rule(who: str, operation: Operation, permission: Permission = ALLOW, host: str = "*") -> Rule:
    return Rule(f"User:{who}", host, operation, permission)


def topic(name: str, pattern: Pattern = Pattern.LITERAL) -> Resource:
    return Resource(TOPIC, pattern, name)


def test_literal_prefixed_and_wildcard() -> None:
    index = index_of(
        {
            topic("orders"): frozenset({rule("a", Operation.READ)}),
            topic("or", Pattern.PREFIXED): frozenset({rule("b", Operation.READ)}),
            topic("*"): frozenset({rule("c", Operation.READ)}),
        }
    )
    asked = {(who, name) for who in "abc" for name in ("orders", "orbit", "other")}
    allowed = {key for key in asked if index.allows(f"User:{key[0]}", "h", Operation.READ, TOPIC, key[1])}
    assert allowed == {
        ("a", "orders"),
        ("b", "orders"),
        ("b", "orbit"),
        ("c", "orders"),
        ("c", "orbit"),
        ("c", "other"),
    }
    assert not index.allows("User:c", "h", Operation.READ, GROUP, "orders")


@pytest.mark.parametrize("implying", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_describe_is_implied_by_permissions_and_not_denied_by_their_denials(implying: Operation) -> None:
    index = index_of(
        {
            topic("t"): frozenset(
                {rule("a", implying), rule("b", Operation.DESCRIBE), rule("b", implying, DENY)}
            )
        }
    )
    assert index.allows("User:a", "h", Operation.DESCRIBE, TOPIC, "t")
    assert index.allows("User:b", "h", Operation.DESCRIBE, TOPIC, "t")
    assert not index.allows("User:a", "h", Operation.DESCRIBE_CONFIGS, TOPIC, "t")


def test_a_denial_wins_also_by_prefix_host_everybody_and_all() -> None:
    allowed = frozenset({rule("a", Operation.ALL)})
    for denying in (
        {topic("t", Pattern.PREFIXED): frozenset({rule("a", Operation.READ, DENY)})},
        {topic("*"): frozenset({rule("*", Operation.READ, DENY)})},
        {topic("*"): frozenset({rule("a", Operation.ALL, DENY, "10.0.0.1")})},
    ):
        index = index_of({topic("topic"): allowed, **denying})
        assert not index.allows("User:a", "10.0.0.1", Operation.READ, TOPIC, "topic")
    assert index.allows("User:a", "10.0.0.2", Operation.READ, TOPIC, "topic")


def test_what_no_rule_names() -> None:
    index = index_of({topic("t"): frozenset({rule("a", Operation.READ)})})
    for if_none_found in (False, True):
        assert (
            index.allows("User:b", "h", Operation.READ, TOPIC, "u", if_none_found=if_none_found)
            is if_none_found
        )
        assert not index.allows("User:b", "h", Operation.READ, TOPIC, "t", if_none_found=if_none_found)


def test_some_topic() -> None:
    def some(*pairs: tuple[Resource, Rule]) -> bool:
        rules: dict[Resource, frozenset[Rule]] = {}
        for resource, each in pairs:
            rules[resource] = rules.get(resource, frozenset()) | {each}
        return index_of(rules).allows_any("User:a", "h", Operation.WRITE, TOPIC)

    write, denied = rule("a", Operation.WRITE), rule("a", Operation.WRITE, DENY)
    prefix = topic("or", Pattern.PREFIXED)
    assert not some()
    assert some((topic("t"), write))
    assert some((topic("*"), rule("*", Operation.ALL)))
    assert not some((topic("t"), rule("b", Operation.WRITE)))
    assert not some((topic("t"), write), (topic("*"), denied))
    assert not some((topic("orders"), write), (prefix, denied))
    assert not some((topic("orders"), write), (topic("orders"), denied))
    assert some((topic("orders"), write), (topic("x"), write), (prefix, denied))
    # A denial of the very name leaves the other names of a prefix.
    assert some((prefix, write), (topic("or"), denied))
    assert not some((prefix, write), (topic("o", Pattern.PREFIXED), denied))
    assert some((topic("*"), write), (prefix, denied))


def test_some_topic_where_all_that_no_rule_names_is_open() -> None:
    def some(*pairs: tuple[Resource, Rule]) -> bool:
        index = index_of({resource: frozenset({each}) for resource, each in pairs})
        return index.allows_any("User:a", "h", Operation.WRITE, TOPIC, if_none_found=True)

    denied = rule("a", Operation.WRITE, DENY)
    assert some()
    assert some((topic("t"), denied))
    assert not some((topic("*"), denied))


names = st.text(st.sampled_from("ab"), min_size=1, max_size=4) | st.just("*")
rules_of = st.dictionaries(
    st.builds(Resource, st.just(TOPIC), st.sampled_from((Pattern.LITERAL, Pattern.PREFIXED)), names),
    st.frozensets(
        st.builds(
            Rule,
            st.sampled_from(("User:a", "User:*")),
            st.sampled_from(("*", "h")),
            st.sampled_from((Operation.READ, Operation.DESCRIBE, Operation.ALL)),
            st.sampled_from((ALLOW, DENY)),
        ),
        max_size=3,
    ),
    max_size=6,
)


@given(rules_of, names, st.sampled_from((Operation.READ, Operation.DESCRIBE)))
def test_the_index_agrees_with_reading_all_rules(rules: Rules, name: str, operation: Operation) -> None:
    """The definition, read off Kafka's documentation: any denial, else any permission that implies it."""
    applying = [
        each
        for (_, pattern, of), rules_of_resource in rules.items()
        for each in rules_of_resource
        if (of in (name, "*") if pattern is Pattern.LITERAL else name.startswith(of))
    ]
    implying = {operation, Operation.ALL} | ({Operation.READ} if operation is Operation.DESCRIBE else set())
    denied = any(
        each.permission is DENY and each.operation in (operation, Operation.ALL) for each in applying
    )
    allowed = any(each.permission is ALLOW and each.operation in implying for each in applying)
    index = index_of(rules)
    assert index.allows("User:a", "h", operation, TOPIC, name) is (allowed and not denied)
    for resource in rules:
        index.set(resource, frozenset())
    assert index.of(TOPIC, name) == []


def test_filters() -> None:
    rules = {
        topic("orders"): frozenset({rule("a", Operation.READ), rule("b", Operation.WRITE)}),
        topic("or", Pattern.PREFIXED): frozenset({rule("a", Operation.READ)}),
        topic("*"): frozenset({rule("a", Operation.ALL)}),
        Resource(GROUP, Pattern.LITERAL, "orders"): frozenset({rule("a", Operation.READ)}),
    }

    def matches(
        pattern: Pattern, name: str | None, kind: ResourceType = TOPIC, who: str | None = None
    ) -> list[str]:
        wanted = Filter(kind, pattern, name, who, None, Operation.ANY, Permission.ANY)
        return [
            f"{resource.type.name}:{resource.name}:{len(each)}" for resource, each in matching(rules, wanted)
        ]

    assert matches(Pattern.LITERAL, "orders") == ["TOPIC:orders:2"]
    assert matches(Pattern.ANY, "or") == ["TOPIC:or:1"]
    assert sorted(matches(Pattern.MATCH, "orders")) == ["TOPIC:*:1", "TOPIC:or:1", "TOPIC:orders:2"]
    assert sorted(matches(Pattern.ANY, None, ResourceType.ANY, "User:b")) == ["TOPIC:orders:1"]
    assert len(matches(Pattern.ANY, None, ResourceType.ANY)) == 4


@pytest.mark.parametrize("name", ["orders", "*", "a/b", ".", "..", "%2F", "50%", "ö ä"])
@pytest.mark.parametrize("pattern", [Pattern.LITERAL, Pattern.PREFIXED])
@pytest.mark.parametrize("kind", list(SUPPORTED))
def test_nodes(kind: ResourceType, pattern: Pattern, name: str) -> None:
    resource = Resource(kind, pattern, name)
    assert resource_of(resource_path(resource)) == resource
    assert resource_path(resource).count("/") == (3 if pattern is Pattern.LITERAL else 4)


def test_payload_is_kafkas() -> None:
    rules = frozenset({rule("alice", Operation.DESCRIBE_CONFIGS, DENY, "10.0.0.1")})
    text = (
        b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Deny",'
        b'"operation":"DescribeConfigs","host":"10.0.0.1"}]}'
    )
    assert encode_rules(rules) == text
    assert decode_rules("/x", text) == rules
    with pytest.raises(ValueError, match="no access rules"):
        decode_rules("/x", b'{"acls":[{"principal":"User:alice"}]}')
    assert resource_path(topic("t")) == "/kafka-acl/Topic/t"
    txn = Resource(ResourceType.TRANSACTIONAL_ID, Pattern.PREFIXED, "t")
    assert resource_path(txn) == "/kafka-acl-extended/prefixed/TransactionalId/t"


def test_ten_thousand_rules_cost_no_more_than_a_few() -> None:
    """Counted in steps of the index, not in time: how many sets of rules a question looks at."""
    chance = random.Random(1)
    rules = {
        topic(f"t{number}{chance.random()}", chance.choice((Pattern.LITERAL, Pattern.PREFIXED))): frozenset(
            {rule(f"u{number}", Operation.READ)}
        )
        for number in range(10_000)
    }
    index = index_of(rules)
    name = next(resource.name for resource in rules)
    assert 1 <= len(index.of(TOPIC, name)) <= 3
