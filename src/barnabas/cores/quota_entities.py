"""The entities of quotas: users, client ids, pairs of both, IP addresses, and the defaults of each.

In the znode tree a quota is a config of /config/users/U, /config/users/U/clients/C, /config/clients/C or
/config/ips/IP, where each name is sanitized or <default>. Source: Kafka's ClientQuotaManager,
ClientQuotaControlManager and DescribeClientQuotas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from ipaddress import ip_address
from typing import Final, NamedTuple

from barnabas.cores.znode_layout import DEFAULT_ENTITY, sanitize, unsanitize
from barnabas.wire.errors import ApiError, ErrorCode

ConfigKey = tuple[str, str]
USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

CLIENT_KEYS: Final = frozenset(
    {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}
)
IP_KEYS: Final = frozenset({"connection_creation_rate"})
WHOLE_NUMBERS: Final = frozenset({"producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"})


class Limit(NamedTuple):
    """What a client may use. owner: (user, client id) whose use is added up; "" if all share the limit."""

    rate: float
    owner: tuple[str, str]


class QuotaTable:
    """Limits by entity, for look-up by client."""

    def __init__(self, configs: Mapping[ConfigKey, Mapping[str, str]]) -> None:
        """configs: of the cluster image; kinds other than users, clients and ips are ignored."""
        self._limits: dict[ConfigKey, dict[str, float]] = {}
        for (kind, name), texts in configs.items():
            if kind in ("users", "clients", "ips"):
                allowed = IP_KEYS if kind == "ips" else CLIENT_KEYS
                self._limits[(kind, name)] = {
                    key: float(text) for key, text in texts.items() if key in allowed
                }
        self.keys_in_use: frozenset[str] = frozenset(key for rates in self._limits.values() for key in rates)

    def find(self, quota: str, user: str, client_id: str) -> Limit | None:
        """The limit of a client, from the most specific entity that sets this quota; None if there is none.

        Order: the pair, the user with any client, the user, any user with the client, any pair, any user, the
        client, any client.
        """
        name, client = sanitize(user), sanitize(client_id)
        pair, alone, shared = (user, client_id), (user, ""), ("", client_id)
        for key, owner in (
            (("users", f"{name}/clients/{client}"), pair),
            (("users", f"{name}/clients/{DEFAULT_ENTITY}"), pair),
            (("users", name), alone),
            (("users", f"{DEFAULT_ENTITY}/clients/{client}"), pair),
            (("users", f"{DEFAULT_ENTITY}/clients/{DEFAULT_ENTITY}"), pair),
            (("users", DEFAULT_ENTITY), alone),
            (("clients", client), shared),
            (("clients", DEFAULT_ENTITY), shared),
        ):
            rate = self._limits.get(key, {}).get(quota)
            if rate is not None:
                return Limit(rate, owner)
        return None

    def find_ip(self, ip: str) -> Limit | None:
        """The limit on connections from an address, or None."""
        for name in (sanitize(ip), DEFAULT_ENTITY):
            rate = self._limits.get(("ips", name), {}).get("connection_creation_rate")
            if rate is not None:
                return Limit(rate, (ip, ""))
        return None


Entity = Mapping[str, str | None]
"""Entity type -> name; None is the default entity."""


def _part(name: str | None) -> str:
    return DEFAULT_ENTITY if name is None else sanitize(name)


def entity_config(entity: Entity) -> ConfigKey:
    """(kind, name) of the config that stores an entity's quotas. Raises ApiError(INVALID_REQUEST)."""
    if not entity:
        raise _bad("Invalid empty client quota entity")
    for kind, name in entity.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise _bad(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _bad(f"Empty {kind} not supported")
    if IP in entity:
        if len(entity) > 1:
            raise _bad(
                "Invalid quota entity combination, IP entity should not be used with user or client ID"
            )
        name = entity[IP]
        if name is not None and not _is_address(name):
            raise _bad(f"{name} is not a valid IP")
        return "ips", _part(name)
    if USER not in entity:
        return "clients", _part(entity[CLIENT_ID])
    if CLIENT_ID not in entity:
        return "users", _part(entity[USER])
    return "users", f"{_part(entity[USER])}/clients/{_part(entity[CLIENT_ID])}"


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _bad(why: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, why)


def config_entity(key: ConfigKey) -> dict[str, str | None] | None:
    """The entity whose quotas a config stores; None for configs of other kinds."""
    kind, name = key
    if kind == "ips":
        return {IP: _name(name)}
    if kind == "clients":
        return {CLIENT_ID: _name(name)}
    if kind != "users":
        return None
    user, slash, client = name.partition("/clients/")
    return {USER: _name(user), CLIENT_ID: _name(client)} if slash else {USER: _name(user)}


def _name(part: str) -> str | None:
    return None if part == DEFAULT_ENTITY else unsanitize(part)


def altered_quotas(
    entity: Entity, current: Mapping[str, str], changes: Iterable[tuple[str, float | None]]
) -> dict[str, str]:
    """An entity's config texts after AlterClientQuotas. changes: (key, value); a value of None removes the key.

    Other texts in the same config (SCRAM credentials of a user) are kept. Raises ApiError(INVALID_REQUEST).
    """
    allowed = IP_KEYS if IP in entity else CLIENT_KEYS
    texts = dict(current)
    for key, value in changes:
        if key not in allowed:
            raise _bad(f"Invalid configuration key {key}; allowed: {', '.join(sorted(allowed))}")
        if value is None:
            texts.pop(key, None)
            continue
        # The last condition also refuses NaN.
        if value < 0 or (value == 0 and key not in IP_KEYS) or not value < float("inf"):
            raise _bad(f"Quota {key} must be greater than 0")
        if key in WHOLE_NUMBERS and value != int(value):
            raise _bad(f"Quota {key} must be a whole number, not {value}")
        texts[key] = str(float(value))
    return texts


class Match(IntEnum):
    """How a component of a DescribeClientQuotas filter matches; the numbers are the protocol's."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class Component(NamedTuple):
    """One component of a filter. name: only for EXACT."""

    entity_type: str
    match: int
    name: str | None = None


def matching_quotas(
    configs: Mapping[ConfigKey, Mapping[str, str]], components: Sequence[Component], *, strict: bool
) -> Iterator[tuple[dict[str, str | None], dict[str, float]]]:
    """The entities with quotas that match the filter: entity, and values by key.

    strict: leave out entities of types that no component names. Raises ApiError(INVALID_REQUEST).
    """
    _check_components(components)
    wanted = {component.entity_type: component for component in components}
    for key, texts in configs.items():
        entity = config_entity(key)
        if entity is None or (strict and set(entity) - set(wanted)):
            continue
        if all(kind in entity and _matches(component, entity[kind]) for kind, component in wanted.items()):
            values = {name: float(text) for name, text in texts.items() if name in CLIENT_KEYS | IP_KEYS}
            if values:
                yield entity, values


def _check_components(components: Sequence[Component]) -> None:
    kinds = [component.entity_type for component in components]
    for kind in kinds:
        if not kind:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a component of the filter names no entity type")
        if kind not in (USER, CLIENT_ID, IP):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{kind}' not supported")
        if kinds.count(kind) > 1:
            raise _bad(f"Duplicate {kind} filter component entity type")
    if IP in kinds and len(kinds) > 1:
        raise _bad("Invalid entity filter component combination, IP filter should not be used with others")
    for component in components:
        if component.match not in (Match.EXACT, Match.DEFAULT, Match.ANY):
            raise _bad(f"Unknown match type {component.match}")
        if component.match == Match.EXACT and component.name is None:
            raise _bad(f"Request specifies MATCH_TYPE_EXACT, but no name for {component.entity_type}")


def _matches(component: Component, name: str | None) -> bool:
    if component.match == Match.EXACT:
        return name is not None and name == component.name
    return name is None if component.match == Match.DEFAULT else True
